import { sql } from 'kysely';
import t from 'tap';
import { issueKey } from '../../src/control/keys.ts';
import { OPERATOR_KEY, testServer, until } from '../support/harness.ts';
import { checkRefusal, readSecret } from '../support/wire.ts';

const MAX = 20;

t.test('past its limit a caller is asked to come back in a second, and nobody else is', async (t) => {
  const server = await testServer(t, { requestsPerSecondMax: MAX });
  const { call, work, environment, database, environmentKey } = server;
  const { key: other } = await issueKey(database, { environmentId: environment.id, name: 'other' });
  const poll = (as: string, worker?: string) =>
    call('GET', work('/poll'), { as, headers: worker === undefined ? {} : { 'anthropic-worker-id': worker } });
  /** All at once: they fall into one second, or two. */
  const flood = (worker?: string) => Promise.all(Array.from({ length: 3 * MAX }, () => poll(environmentKey, worker)));
  const refused = (await flood()).filter(({ status }) => status !== 200);
  t.ok(refused.length >= MAX && refused.length <= 2 * MAX, `${refused.length} were refused`);
  for (const answer of refused) {
    checkRefusal(t, answer, 429, 'too many');
    t.equal(answer.headers.get('retry-after'), '1');
  }
  t.equal((await poll(other)).status, 200, 'another key');
  t.equal((await poll(environmentKey, 'a worker of its own name')).status, 200, 'another worker of the key');
  t.equal((await call('GET', '/healthz', { as: null })).status, 200);
  await until('the next second', async () => (await poll(environmentKey)).status === 200);
});

t.test('a sessions token is counted for its item, and a refused heartbeat leaves the lease as it was', async (t) => {
  const { call, work, enqueue } = await testServer(t, { requestsPerSecondMax: MAX });
  await enqueue('session');
  const { json } = await call('GET', work('/poll'));
  const token = readSecret(json.secret).sessions_token;
  await call('POST', work(`/${json.id}/ack`));
  const beat = () => call('POST', work(`/${json.id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`), { as: token });
  const answers = await Promise.all(Array.from({ length: 3 * MAX }, beat));
  const count = (status: number) => answers.filter((answer) => answer.status === status).length;
  t.equal(count(200), 1, 'one has it');
  t.ok(count(429) >= MAX, `${count(429)} were too many`);
  t.equal(count(200) + count(412) + count(429), 3 * MAX);
  t.equal((await call('GET', work(`/${json.id}`))).json.state, 'active');
});

/** The Go worker gives an ack two more tries and then stops the item for good. */
t.test('a refused ack leaves the item as it was, and is asked to come back in ten seconds', async (t) => {
  const { call, work, enqueue } = await testServer(t, { requestsPerSecondMax: MAX });
  await enqueue('session');
  const { json } = await call('GET', work('/poll'));
  const ack = (id: string) => call('POST', work(`/${id}/ack`), { headers: { 'anthropic-worker-id': 'busy' } });
  const refused = (await Promise.all(Array.from({ length: 3 * MAX }, () => ack('work_unknown')))).filter(
    ({ status }) => status !== 404,
  );
  t.ok(refused.length >= MAX, `${refused.length} were refused`);
  for (const answer of refused) {
    checkRefusal(t, answer, 429, 'too many');
    t.equal(answer.headers.get('retry-after'), '10');
  }
  t.equal((await call('GET', work(`/${json.id}`), { as: OPERATOR_KEY })).json.state, 'queued');
  await until('the next second', async () => (await ack(json.id)).status === 200);
});

t.test('workers of one key that do not say who they are are counted by their items', async (t) => {
  const { call, work } = await testServer(t, { requestsPerSecondMax: MAX });
  const beat = (id: string) => call('POST', work(`/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`));
  const answers = await Promise.all(Array.from({ length: 3 * MAX }, (_, n) => beat(`work_${n}`)));
  t.strictSame([...new Set(answers.map(({ status }) => status))], [404]);
});

t.test('figures are read once for all who ask within a second', async (t) => {
  const { call, work, enqueue } = await testServer(t, { statsKeptMs: 1_000 });
  const depth = async () => (await call('GET', work('/stats'), { as: OPERATOR_KEY })).json.depth;
  t.equal(await depth(), 0);
  await enqueue('session');
  t.equal(await depth(), 0, 'as it was a moment ago');
  const since = performance.now();
  await until('they are read again', async () => (await depth()) === 1);
  t.ok(performance.now() - since < 1_500, 'within a second');
});

t.test('figures that could not be read are not kept', async (t) => {
  const { call, work, database } = await testServer(t, { statsKeptMs: 60_000 });
  const { environments } = database.names;
  const unknown = '/v1/environments/env_later/work/stats';
  checkRefusal(t, await call('GET', unknown, { as: OPERATOR_KEY }), 404, 'no such environment');
  await database.rows(sql`insert into ${environments} (id, name, type) values ('env_later', 'later', 'self_hosted')`);
  t.equal((await call('GET', unknown, { as: OPERATOR_KEY })).json.depth, 0);
  t.equal((await call('GET', work('/stats'))).json.depth, 0);
});
