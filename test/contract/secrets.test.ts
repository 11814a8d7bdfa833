import { pino } from 'pino';
import t from 'tap';
import { mintApiKey, mintEnvironmentKey } from '../../src/control/key-rows.ts';
import { issueKey } from '../../src/control/keys.ts';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { callRoute, checkRefusal, ROUTES, readSecret } from '../support/wire.ts';

const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736';
const TRACEPARENT = `00-${TRACE_ID}-00f067aa0ba902b7-01`;
const TRACESTATE = 'vendor=opaque,other=t61rcWkgMzE';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const lines: string[] = [];
    const logger = pino({ level: 'trace' }, { write: (line) => void lines.push(line) });
    // What is handed out stays so, however slow the machine.
    const server = await testServer(t, { engine, logger, settings: { reclaimOlderThanMs: 600_000 } });
    const { call, work, enqueue, database, environment, environmentKey, url } = server;
    const control = `/control/v1/environments/${environment.id}`;
    let count = 0;
    const enqueueOverHttp = (headers: Record<string, string>, session = `traced ${count++}`) =>
      call('POST', `${control}/work`, { as: OPERATOR_KEY, headers, body: { data: { type: 'session', id: session } } });

    t.test(
      'secret is base64url of a token of this hand-out and the address, in the answer of a poll only',
      async (t) => {
        const created = await enqueueOverHttp({}, 'secret');
        const covered = await enqueueOverHttp({}, 'secret');
        const { json } = await call('GET', work('/poll'));
        t.equal(json.id, created.json.id);
        t.match(json.secret, /^[A-Za-z0-9_-]+$/);
        const secret = readSecret(json.secret);
        t.strictSame(Object.keys(secret), ['sessions_token', 'api_base_url']);
        t.equal(secret.api_base_url, url);

        const acked = await call('POST', work(`/${json.id}/ack`), { as: secret.sessions_token });
        t.equal(acked.json.state, 'starting', 'the token opens its item');
        const others = [created, covered, acked, await call('GET', work(`/${json.id}`))];
        others.push(await call('POST', work(`/${json.id}`), { body: { metadata: {} } }));
        for (const answer of others) t.equal(answer.json.secret, null);
        for (const item of (await call('GET', work())).json.data) t.equal(item.secret, null, 'list');

        await lapse(database, json.id);
        const again = (await call('GET', work('/poll'))).json;
        t.not(readSecret(again.secret).sessions_token, secret.sessions_token, 'each hand-out has its own');
        await call('POST', work(`/${again.id}/stop`));
      },
    );

    t.test('no credential is ever logged, nor shown in a refusal', async (t) => {
      await enqueue('logged');
      const { json } = await call('GET', work('/poll'));
      await enqueue('unfinished'); // or the environment could be deleted once what is reported has ended
      const issued = await call('POST', `${control}/keys`, { as: OPERATOR_KEY, body: { name: 'logged' } });
      const known = {
        token: readSecret(json.secret).sessions_token,
        environment: environmentKey,
        operator: OPERATOR_KEY,
        issued: issued.json.key,
        api: (await issueKey(database, { environmentId: null, name: 'logged' })).key,
      };
      const unknown = { environment: mintEnvironmentKey(), api: mintApiKey(), nonsense: 'a-password-sent-by-mistake' };
      const places = [environment.id, 'env_unknown'].map((environmentId) => ({ environmentId, workId: json.id }));
      const secrets = [...Object.values(known), ...Object.values(unknown)];
      for (const as of secrets) {
        for (const place of places) {
          for (const route of ROUTES) {
            const answer = await callRoute(server, route, place, as);
            if (answer.status < 400) continue;
            const shown = answer.text + JSON.stringify([...answer.headers]);
            t.notOk(shown.includes(as), `${route.name} shows no credential`);
          }
        }
        await call('POST', work(`/${json.id}`), { as, raw: '{', headers: { 'x-api-key': as } });
        await call('GET', `/no/such/route`, { as });
      }
      const log = lines.join('');
      t.match(log, '/v1/environments/:environment_id/work/poll', 'the log did see the calls');
      for (const secret of [...secrets, json.secret]) {
        t.notOk(log.includes(secret), 'not in the log as it is');
        t.notOk(log.includes(secret.slice(-32)), 'nor its secret part');
      }
    });

    const drain = async () => {
      while ((await call('GET', work('/poll'))).json !== null);
    };

    t.test(
      "a poll's hit brings back the trace that enqueue was sent under; no body and no other answer does",
      async (t) => {
        await drain();
        const { status, json } = await enqueueOverHttp({ traceparent: TRACEPARENT, tracestate: TRACESTATE }, 'traced');
        t.equal(status, 201);
        // The trace stays the one that the work was made under.
        const covering = TRACEPARENT.replace('4bf9', 'ffff');
        t.equal((await enqueueOverHttp({ traceparent: covering }, 'traced')).status, 200);
        const poll = await call('GET', work('/poll'));
        t.equal(poll.json.id, json.id);
        await lapse(database, json.id);
        const again = await call('GET', work('/poll'));
        t.equal(again.json.data.id, 'traced');
        for (const answer of [poll, again]) {
          t.equal(answer.headers.get('traceparent'), TRACEPARENT);
          t.equal(answer.headers.get('tracestate'), TRACESTATE);
        }
        const miss = await call('GET', work('/poll'));
        t.equal(miss.text, 'null');
        const others = [miss, await call('GET', work(`/${again.json.id}`)), await call('GET', work('?limit=1'))];
        others.push(await call('POST', work(`/${again.json.id}/ack`)));
        for (const answer of others)
          t.equal(answer.headers.get('traceparent') ?? answer.headers.get('tracestate'), null);
        for (const answer of [poll, again, ...others]) t.notMatch(answer.text, TRACE_ID, 'no body');
        t.strictSame(poll.json.metadata, {});
      },
    );

    t.test('a trace that is not well-formed is passed over, and the work is taken', async (t) => {
      const malformed: Record<string, string>[] = [
        {},
        { tracestate: TRACESTATE },
        { traceparent: '', tracestate: TRACESTATE },
        ...[
          'nonsense',
          TRACEPARENT.slice(0, -1),
          `${TRACEPARENT}-more`,
          TRACEPARENT.toUpperCase(),
          TRACEPARENT.replace(/^00/, 'ff'),
          TRACEPARENT.replace(TRACE_ID, '0'.repeat(32)),
          TRACEPARENT.replace('00f067aa0ba902b7', '0'.repeat(16)),
          TRACEPARENT.replaceAll('-', '_'),
          `${TRACEPARENT}, ${TRACEPARENT}`,
          'x'.repeat(4_000),
        ].map((traceparent) => ({ traceparent, tracestate: TRACESTATE })),
      ];
      for (const headers of malformed) {
        const what = JSON.stringify(headers).slice(0, 80);
        const { status, json } = await enqueueOverHttp(headers);
        t.equal(status, 201, what);
        const poll = await call('GET', work('/poll'));
        t.equal(poll.json.id, json.id, what);
        t.equal(poll.headers.get('traceparent') ?? poll.headers.get('tracestate'), null, what);
      }
      await enqueueOverHttp({ traceparent: TRACEPARENT, tracestate: 'x'.repeat(513) });
      const { headers } = await call('GET', work('/poll'));
      t.equal(headers.get('traceparent'), TRACEPARENT, 'a state that is too long costs only the state');
      t.equal(headers.get('tracestate'), null);
    });

    t.test('an environment has the official shape, with defaults for what is not given', async (t) => {
      const create = (body: object) => call('POST', '/v1/environments', { as: OPERATOR_KEY, body });
      const instant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/;
      const full = { name: 'full', description: 'd', config: { type: 'cloud' }, metadata: { team: 'tools' } };
      const defaults = { description: null, config: { type: 'self_hosted' }, metadata: {} };
      const fixed = { type: 'environment', scope: 'organization', archived_at: null };
      const cases = [
        [{ name: 'bare' }, defaults],
        [full, full],
        [{ name: 'nulls', description: null, config: null }, defaults],
      ] as const;
      for (const [body, expected] of cases) {
        const { status, json } = await create({ ...body, scope: 'ignored', unheard_of: 1 });
        t.equal(status, 200, body.name);
        const { id, created_at, updated_at, ...rest } = json;
        t.match(id, /^env_/);
        for (const at of [created_at, updated_at]) t.match(at, instant);
        t.strictSame(rest, { ...expected, ...fixed, name: body.name }, body.name);
        t.strictSame(
          (await call('GET', `/v1/environments/${id}`, { as: OPERATOR_KEY })).json,
          json,
          'and reads the same',
        );
      }
      checkRefusal(t, await call('GET', '/v1/environments/env_unknown', { as: OPERATOR_KEY }), 404, 'an unknown one');
    });

    t.test('a live name is taken, an archived one is free', async (t) => {
      const create = () => call('POST', '/v1/environments', { as: OPERATOR_KEY, body: { name: 'taken' } });
      const { id } = (await create()).json;
      const second = await create();
      checkRefusal(t, second, 409, 'taken');
      t.match(second.json.error.message, /name/);
      await database.rows(
        database.kysely.updateTable('environments').set({ archived_at: '2026-01-01T00:00:00Z' }).where('id', '=', id),
      );
      t.equal((await create()).status, 200);
    });

    t.test("an issued key is shown once, opens its environment at once, and no other's", async (t) => {
      const { status, json } = await call('POST', `${control}/keys`, { as: OPERATOR_KEY, body: { name: 'workers' } });
      t.equal(status, 201);
      t.match(json, { type: 'key', name: 'workers', hint: json.key.slice(-4), environment_id: environment.id });
      t.ok(Date.parse(json.expires_at) > Date.now());
      t.equal((await call('GET', work('/stats'), { as: json.key })).status, 200);
      const elsewhere = await call('POST', '/v1/environments', { as: OPERATOR_KEY, body: { name: 'elsewhere' } });
      const path = `/v1/environments/${elsewhere.json.id}/work/stats`;
      checkRefusal(t, await call('GET', path, { as: json.key }), 401, 'another environment');
      const unknown = '/control/v1/environments/env_unknown/keys';
      checkRefusal(t, await call('POST', unknown, { as: OPERATOR_KEY, body: { name: 'x' } }), 404, 'no environment');
    });

    t.test('enqueue answers 201 when it made the item, 200 with the same item while that is live', async (t) => {
      const send = () => enqueueOverHttp({}, 'twice');
      const [first, second] = [await send(), await send()];
      t.equal(first.status, 201);
      t.equal(second.status, 200);
      t.strictSame(second.json, first.json);
      await call('POST', work(`/${first.json.id}/stop`));
      const third = await send();
      t.equal(third.status, 201);
      t.not(third.json.id, first.json.id, 'one that ended covers nothing');
    });
  });
}
