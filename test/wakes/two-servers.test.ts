import pg from 'pg';
import t, { type Test } from 'tap';
import { caller, OPERATOR_KEY, until } from '../support/harness.ts';
import { endListening, freshDatabase, startMain } from '../support/process.ts';
import { eventsPath, openWakes } from '../support/wakes.ts';
import { checkRefusal } from '../support/wire.ts';

const as = OPERATOR_KEY;
const WORK = { type: 'work_available' };
/** Far longer than a busy machine takes: what is held up takes all of it. */
const GRACE_SECONDS = 120;

/** Two server processes on one database; what is done on the one is heard of on the other. */
async function twoServers(t: Test) {
  const databaseUrl = await freshDatabase(t);
  const variables = { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: as, SHUTDOWN_GRACE_SECONDS: `${GRACE_SECONDS}` };
  const [one, other] = await Promise.all([startMain(t, variables), startMain(t, variables)]);
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  t.teardown(() => client.end());
  const [here, there] = [caller(one.url, as), caller(other.url, as)];
  const { id } = (await here('POST', '/v1/environments', { body: { name: 'ours' } })).json;
  const issue = async (body: object): Promise<{ id: string; key: string }> =>
    (await here('POST', `/control/v1/environments/${id}/keys`, { body: { name: 'workers', ...body } })).json;
  return {
    ...{ one, other, here, there, id, client, issue },
    attach: (key: string | null = as, query = '') => openWakes(t, other.url, id, { as: key }, query),
    enqueue: (session: string) =>
      here('POST', `/control/v1/environments/${id}/work`, { body: { data: { type: 'session', id: session } } }),
    /** A notification went from the one to the other. Leaves the environment paused: nothing tells of work that is not there. */
    async untilHeard(stream: { told(): { type: string }[]; forget(): void }) {
      const isHeard = () => stream.told().some(({ type }) => type === 'environment_paused');
      await until('the other replica to hear', async () => {
        await here('POST', `/control/v1/environments/${id}/pause`);
        return isHeard();
      });
    },
  };
}

t.test('what happens on one server is told to readers of the other, to each key in its time', async (t) => {
  const { here, id, issue, attach, enqueue, untilHeard } = await twoServers(t);
  const minQueuedAgeMs = 1_500;
  const [eager, patient] = [await issue({}), await issue({ min_queued_age_ms: minQueuedAgeMs })];
  const stream = await attach(eager.key);
  await untilHeard(stream);
  const aged = await attach(patient.key);

  const began = performance.now();
  await enqueue('session');
  await until('work', () => stream.told().some(({ type }) => type === WORK.type));
  await until('the patient one', () => aged.told().some(({ type }) => type === WORK.type));
  t.ok(performance.now() - began >= minQueuedAgeMs, 'not before it is of that age');

  const work = `/v1/environments/${id}/work`;
  await here('POST', `/control/v1/environments/${id}/resume`);
  const item = (await here('GET', `${work}/poll`)).json.id;
  await here('POST', `${work}/${item}/ack`);
  await here('POST', `${work}/${item}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`);
  const control = `/control/v1/environments/${id}`;
  const body = { data: { type: 'session', id: 'session' } };
  for (const [path, event, options] of [
    [`${work}/${item}/stop`, { type: 'stop_requested', work_id: item }, {}],
    [`${control}/work/cancel`, { type: 'stop_requested', work_id: item }, { body }],
    [`${control}/pause`, { type: 'environment_paused' }, {}],
    [`${control}/resume`, { type: 'environment_resumed' }, {}],
  ] as const) {
    stream.forget();
    t.ok((await here('POST', path, options)).status < 300, path);
    await until(path, () => stream.told().some(({ type }) => type === event.type));
    t.strictSame(
      stream.told().filter(({ type }) => type !== WORK.type),
      [event],
    );
  }
  t.equal((await here('DELETE', `/v1/environments/${id}`)).status, 200);
  await until('the end', () => stream.state() !== 'open');
  t.equal(stream.state(), 'ended');
});

t.test('a ticket of one server opens a stream on the other, which ends when its key is revoked', async (t) => {
  const { here, there, id, issue, attach, client } = await twoServers(t);
  const { id: keyId, key } = await issue({});
  const ask = async (as: string): Promise<string> =>
    (await here('POST', `${eventsPath(id)}/tickets`, { as })).json.ticket;
  const [ticket, unused, operators] = [await ask(key), await ask(key), await ask(as)];
  const [stream, other] = [await attach(null, `?ticket=${ticket}`), await attach(null, `?ticket=${operators}`)];
  t.strictSame([stream.status, other.status], [200, 200]);
  t.equal((await here('DELETE', `/control/v1/environments/${id}/keys/${keyId}`)).status, 200);
  await until('its end', () => stream.state() !== 'open');
  t.equal(stream.state(), 'ended');
  const refused = async () => there('GET', `${eventsPath(id)}?ticket=${unused}`, { as: null });
  checkRefusal(t, await refused(), 401, 'nor does another of that key');
  t.equal(other.state(), 'open');
  await client.query(`update leasehold.stream_tickets set expires_at = now() - interval '1 second'`);
  await until(
    'the tickets to be removed',
    async () => (await client.query('select from leasehold.stream_tickets')).rowCount === 0,
  );
});

t.test('when LISTEN was lost and is back, every reader is told to look', async (t) => {
  const { attach, client, untilHeard, enqueue } = await twoServers(t);
  const stream = await attach();
  await untilHeard(stream);
  t.equal(await endListening(client), 2);
  const isTold = () => stream.told().some(({ type }) => type === WORK.type);
  await until('word of it', isTold);
  stream.forget();
  await untilHeard(stream);
  t.notOk(isTold());
  await enqueue('session');
  await until('work', isTold);
});

t.test('a server with 50 readers ends by SIGTERM well within its grace, and its readers find the other', async (t) => {
  const { one, other, id, attach, enqueue } = await twoServers(t);
  const streams = await Promise.all(Array.from({ length: 50 }, () => attach()));
  const began = performance.now();
  other.child.kill('SIGTERM');
  await until('their end', () => streams.every(({ state }) => state() !== 'open'));
  for (const stream of streams) t.strictSame([stream.state(), stream.rest()], ['ended', '']);
  t.strictSame(await other.ended(), { code: 0, signal: null });
  t.ok(performance.now() - began < (GRACE_SECONDS * 1_000) / 2);
  const back = await openWakes(t, one.url, id);
  await enqueue('session');
  await until('work', () => back.told().length > 0);
});
