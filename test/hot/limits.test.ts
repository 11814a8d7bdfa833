import { sql } from 'kysely';
import t from 'tap';
import { issueKey } from '../../src/control/keys.ts';
import { type Answer, OPERATOR_KEY, type Server, testDatabase, testServer, until } from '../support/harness.ts';
import { checkRefusal, readSecret } from '../support/wire.ts';

const MAX = 20;
const FLOOD = 10 * MAX;

/** Many requests at once, and how many of them are let in at most, in the seconds that they fall into: a busy machine takes a few to send them. */
async function flood(ask: (n: number) => Promise<Answer>): Promise<{ answers: Answer[]; letInMax: number }> {
  const since = performance.now();
  const answers = await Promise.all(Array.from({ length: FLOOD }, (_, n) => ask(n)));
  return { answers, letInMax: MAX * Math.ceil((performance.now() - since) / 1_000 + 1) };
}

t.test('past its limit a caller is asked to come back in a second, and nobody else is', async (t) => {
  const server = await testServer(t, { requestsPerSecondMax: MAX });
  const { call, work, environment, database, environmentKey } = server;
  const { key: other } = await issueKey(database, { environmentId: environment.id, name: 'other' });
  const poll = (as: string, worker?: string) =>
    call('GET', work('/poll'), { as, headers: worker === undefined ? {} : { 'anthropic-worker-id': worker } });
  const { answers, letInMax } = await flood(() => poll(environmentKey));
  const refused = answers.filter(({ status }) => status !== 200);
  t.ok(refused.length >= FLOOD - letInMax && refused.length <= FLOOD - MAX, `${refused.length} were refused`);
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
  const { answers, letInMax } = await flood(beat);
  const count = (status: number) => answers.filter((answer) => answer.status === status).length;
  t.equal(count(200), 1, 'one has it');
  t.ok(count(429) >= FLOOD - letInMax, `${count(429)} were too many`);
  t.equal(count(200) + count(412) + count(429), FLOOD);
  t.equal((await call('GET', work(`/${json.id}`))).json.state, 'active');
});

/** The Go worker gives an ack two more tries and then stops the item for good. */
t.test('a refused ack leaves the item as it was, and is asked to come back in ten seconds', async (t) => {
  const { call, work, enqueue } = await testServer(t, { requestsPerSecondMax: MAX });
  await enqueue('session');
  const { json } = await call('GET', work('/poll'));
  const ack = (id: string) => call('POST', work(`/${id}/ack`), { headers: { 'anthropic-worker-id': 'busy' } });
  const { answers, letInMax } = await flood(() => ack('work_unknown'));
  const refused = answers.filter(({ status }) => status !== 404);
  t.ok(refused.length >= FLOOD - letInMax, `${refused.length} were refused`);
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
  const { answers } = await flood((n) => beat(`work_${n}`));
  t.strictSame([...new Set(answers.map(({ status }) => status))], [404]);
});

t.test('figures are read once for all who ask within a second', async (t) => {
  const database = await testDatabase(t);
  const [quick, slow] = [
    await testServer(t, { database, statsKeptMs: 1_000 }),
    await testServer(t, { database, statsKeptMs: 600_000 }),
  ];
  const depth = async ({ call }: Server) => (await call('GET', quick.work('/stats'), { as: OPERATOR_KEY })).json.depth;
  t.same([await depth(quick), await depth(slow)], [0, 0]);
  const readBefore = performance.now();
  await quick.enqueue('session');
  let lastAt = readBefore;
  await until('they are read again', async () => {
    const sentAt = performance.now();
    const isNew = (await depth(quick)) === 1;
    if (!isNew) lastAt = sentAt;
    return isNew;
  });
  t.ok(lastAt - readBefore <= 1_000, 'who asks a second later is told the new ones');
  t.equal(await depth(slow), 0, 'as it was a moment ago');
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
