import t from 'tap';
import { issueKey } from '../../src/control/keys.ts';
import { auditOf, documentedChanges, everything, freshPlace, patternOf, rowCounts } from '../support/changes.ts';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { holding } from '../support/interleave.ts';
import { callRoute, checkRefusal, ROUTES } from '../support/wire.ts';

/** What only workers do. */
const NOT_AUDITED = ['ackWork', 'heartbeatWork', 'acquireLock', 'renewLock', 'releaseLock'];
/** Not among the routes that are tried everywhere: it is for good. */
const APART = ['archiveEnvironment'];

const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, work, database, environment, environmentKey } = server;
    const operations = await documentedChanges();
    const key = await issueKey(database, { environmentId: null, name: 'the auditor' });
    const control = `/control/v1/environments/${environment.id}`;
    let count = 0;
    const fresh = (what: string) => `${what} ${count++}`;
    const ours = () => auditOf(server, `&key_id=${key.id}`);
    const enqueue = (session: string, headers: Record<string, string> = {}, to = `${control}/work`) =>
      call('POST', to, { as: key.key, headers, body: { data: { type: 'session', id: session } } });

    for (const { method, path, operationId } of operations.filter(({ operationId }) => !APART.includes(operationId))) {
      const isAudited = !NOT_AUDITED.includes(operationId);
      t.test(`${operationId} by an API key leaves ${isAudited ? 'one entry' : 'none'}`, async (t) => {
        const route = ROUTES.find((route) => route.method === method && patternOf(route) === path);
        if (route === undefined) return t.fail(`${method} ${path} is in ROUTES of test/support/wire.ts`);
        const place = await freshPlace(server, fresh('place'));
        const before = await ours();
        const answer = await callRoute(server, route, place, key.key);
        const entries = (await ours()).slice(0, (await ours()).length - before.length);
        if (!isAudited) return t.same(entries, []);
        t.equal(entries.length, 1);
        const [entry = {}] = entries;
        t.match(entry, {
          id: /^audit_\d+$/,
          type: 'audit_entry',
          at: INSTANT,
          key_id: key.id,
          key_name: 'the auditor',
        });
        t.match(entry, { action: operationId, status: answer.status, request_id: answer.headers.get('request-id') });
        t.equal(entry.environment_id, path.includes('{environment_id}') ? place.environmentId : null);
        if (path.includes('{work_id}') && !path.endsWith('requeue')) {
          t.equal(entry.target, place.workId, 'what the path names');
        } else if (path.endsWith('requeue')) t.equal(entry.target, place.setAsideId, 'what the path names');
        else if (answer.status === 201 && answer.json?.id !== undefined)
          t.equal(entry.target, answer.json.id, 'what was made');
        return undefined;
      });
    }

    t.test('archiving and deleting an environment leave entries that outlive it', async (t) => {
      const { json } = await call('POST', '/v1/environments', { as: key.key, body: { name: fresh('outlived') } });
      await call('POST', `/v1/environments/${json.id}/archive`, { as: key.key });
      await call('DELETE', `/v1/environments/${json.id}`, { as: key.key });
      const [deleted, archived, created] = await ours();
      t.match(deleted, { action: 'deleteEnvironment', environment_id: json.id, target: null, status: 200 });
      t.match(archived, { action: 'archiveEnvironment', environment_id: json.id, target: null, status: 200 });
      t.match(created, { action: 'createEnvironment', environment_id: null, target: json.id, status: 200 });
    });

    t.test('workers are not audited', async (t) => {
      const { id, sessionsToken } = await holding(server, fresh('worked'), 'active');
      const before = await rowCounts(database);
      for (const as of [environmentKey, sessionsToken]) await call('POST', work(`/${id}/stop`), { as });
      await call('POST', work(`/${id}`), { body: { metadata: { a: 'b' } } });
      checkRefusal(t, await call('POST', `${control}/work`, { body: {} }), 403, 'a key without the right');
      t.strictSame(await rowCounts(database), before);
    });

    t.test('a refusal is audited with its status, bad input is not, a repeat leaves no second entry', async (t) => {
      const before = await ours();
      const unknown = '/control/v1/environments/env_unknown/work';
      const refused = await enqueue('refused', { 'idempotency-key': 'refused' }, unknown);
      t.match(await ours(), [{ action: 'enqueueWork', environment_id: 'env_unknown', target: null, status: 404 }]);
      t.equal((await ours())[0]?.request_id, refused.headers.get('request-id'));
      await enqueue('refused', { 'idempotency-key': 'refused' }, unknown);
      checkRefusal(t, await enqueue(''), 400, 'bad input');
      const metadata = { '': 'a key without characters' };
      const badly = { data: { type: 'session', id: fresh('badly') }, metadata };
      const alone = await call('POST', `${control}/work`, { as: key.key, body: badly });
      checkRefusal(t, alone, 400, 'bad input that only the act finds');
      const batch = await call('POST', `${control}/work/batch`, { as: key.key, body: { items: [badly] } });
      checkRefusal(t, batch, 400, 'the same in a batch');
      const made = await call('POST', '/v1/environments', { as: key.key, body: { name: fresh('badly'), metadata } });
      checkRefusal(t, made, 400, 'and of an environment');
      t.equal((await ours()).length, before.length + 1);
      const taken = await call('POST', '/v1/environments', { as: key.key, body: { name: environment.name } });
      checkRefusal(t, taken, 409, 'a name that is taken');
      const absent = await call('POST', work('/work_unknown/stop'), { as: key.key });
      checkRefusal(t, absent, 404, 'no such item');
      const [stopped, created] = await ours();
      t.match(created, { action: 'createEnvironment', status: 409, target: null });
      t.match(stopped, { action: 'stopWork', status: 404, target: 'work_unknown' });
    });

    t.test("the process's own key is told as such; neither secrets nor bodies are kept", async (t) => {
      const { json } = await call('POST', `${control}/keys`, { as: OPERATOR_KEY, body: { name: 'a body of words' } });
      const [entry] = await auditOf(server);
      t.match(entry, { key_id: 'operator', key_name: 'LEASEHOLD_API_KEY', target: json.id, status: 201 });
      const log = JSON.stringify(await auditOf(server));
      for (const text of ['a body of words', json.key, OPERATOR_KEY, key.key]) t.notOk(log.includes(text));
      for (const secret of [json.key, OPERATOR_KEY, key.key]) t.notOk((await everything(database)).includes(secret));
    });

    t.test('newest first, by pages, and by environment, key and action', async (t) => {
      const place = await freshPlace(server, fresh('paged'));
      const to = `/control/v1/environments/${place.environmentId}`;
      const made: string[] = [];
      for (let n = 0; n < 5; n++) made.unshift((await enqueue(fresh('paged'), {}, `${to}/work`)).json.id);
      await call('POST', `${to}/keys`, { as: OPERATOR_KEY, body: { name: 'paged' } });
      const list = (query: string) => call('GET', `/control/v1/audit?${query}`, { as: key.key });
      const targets = async (query: string) => (await list(query)).json.data.map((e: { target: string }) => e.target);
      const here = `environment_id=${place.environmentId}`;

      t.equal((await targets(here)).length, 6);
      t.strictSame(await targets(`${here}&key_id=${key.id}`), made);
      t.strictSame(await targets(`${here}&action=enqueueWork`), made);
      t.equal((await targets(`${here}&key_id=operator&action=issueEnvironmentKey`)).length, 1);
      t.strictSame(await targets(`${here}&key_id=operator&action=enqueueWork`), []);
      const paged: string[] = [];
      for (let page = ''; page !== 'null'; ) {
        const { json } = await list(`${here}&action=enqueueWork&limit=2${page}`);
        t.ok(json.data.length <= 2);
        paged.push(...json.data.map((e: { target: string }) => e.target));
        page = json.next_page === null ? 'null' : `&page=${json.next_page}`;
      }
      t.strictSame(paged, made, 'each once');
      t.equal((await list('')).json.data.length, 20, 'twenty unless told otherwise');
    });

    t.test('a bad parameter is refused by name and rule', async (t) => {
      const cases: [string, RegExp][] = [
        ['limit=0', /limit must be an integer from 1 to 1000/],
        ['limit=1001', /limit must be an integer from 1 to 1000/],
        ['limit=five', /limit must be an integer/],
        ['page=nonsense', /page must be the next_page/],
        ['environment_id=', /environment_id must be a string of 1 to 128/],
        [`key_id=${'x'.repeat(129)}`, /key_id must be a string of 1 to 128/],
        ['action=a&action=b', /action must be a string/],
        ['action=%00', /action must not hold NUL/],
      ];
      for (const [query, message] of cases) {
        const answer = await call('GET', `/control/v1/audit?${query}`, { as: OPERATOR_KEY });
        checkRefusal(t, answer, 400, query);
        t.match(answer.json.error.message, message, query);
      }
    });
  });
}
