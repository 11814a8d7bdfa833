import { sql } from 'kysely';
import t from 'tap';
import { changeSettings, pauseEnvironment, resumeEnvironment } from '../../src/control/settings.ts';
import { poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { lapse, testServer } from '../support/harness.ts';
import { hold } from '../support/interleave.ts';
import { newPlace } from '../support/places.ts';
import { settingsOf } from '../support/settings.ts';

const LOOK = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };
/** One for all, each test has an environment of its own. */
const server = await testServer(t);
const { database, queue } = server;
const taker = { workerId: null, reclaimOlderThanMs: 60_000 };

t.test('a change that waits for another is checked against what that one left', async (t) => {
  const { environment } = await newPlace(server);
  const settings = settingsOf(server, environment.id);
  const lowered = await hold(t, database, (held) =>
    changeSettings(held, environment.id, { leaseTtlSecondsMax: 130 }, DEFAULT_SETTINGS),
  );
  const raised = settings.change({ lease_ttl_seconds: 131, retention_days: 1 });
  await lowered.untilBlocked();
  await lowered.commit();
  t.equal((await raised).status, 400);
  t.match((await settings.read()).json.settings, {
    lease_ttl_seconds: null,
    lease_ttl_max_seconds: 130,
    retention_days: null,
  });
});

t.test('two changes at once lose neither', async (t) => {
  const { environment } = await newPlace(server);
  const settings = settingsOf(server, environment.id);
  const first = await hold(t, database, (held) =>
    changeSettings(held, environment.id, { retentionDays: 3 }, DEFAULT_SETTINGS),
  );
  const second = settings.change({ max_hand_outs: 4 });
  await first.untilBlocked();
  await first.commit();
  t.match((await second).json.settings, { retention_days: 3, max_hand_outs: 4 });
  t.match((await settings.read()).json.settings, { retention_days: 3, max_hand_outs: 4 });
});

t.test('of two pauses at once the first one counts, and a resume after it ends both', async (t) => {
  const { environment } = await newPlace(server);
  const { pause, read } = settingsOf(server, environment.id);
  const first = await hold(t, database, (held) => pauseEnvironment(held, environment.id, DEFAULT_SETTINGS));
  const second = pause();
  await first.untilBlocked();
  await first.commit();
  t.equal((await second).json.paused_at, first.answer.pausedAt);
  await resumeEnvironment(database, environment.id, DEFAULT_SETTINGS);
  t.equal((await read()).json.paused_at, null);
});

t.test('a pause that is not committed holds up no poll, and a poll holds up no pause', async (t) => {
  const { environment, enqueue, poll: take } = await newPlace(server);
  const [one, two, three] = [await enqueue('one'), await enqueue('two'), await enqueue('three')];
  const paused = await hold(t, database, (held) => pauseEnvironment(held, environment.id, DEFAULT_SETTINGS));
  t.equal((await take()).json?.id, one);
  await paused.commit();
  t.equal((await take()).text, 'null');
  await resumeEnvironment(database, environment.id, DEFAULT_SETTINGS);
  const polled = await hold(t, database, (held) => poll(held, environment.id, [taker], LOOK));
  t.match(polled.answer, { handOuts: [{ item: { id: two } }] });
  t.match(await settingsOf(server, environment.id).pause(), { status: 200 });
  await polled.commit();
  t.equal((await take()).text, 'null', three);
});

t.test('a change that is not committed holds up neither hand-outs nor heartbeats nor the sweep', async (t) => {
  const { environment, enqueue, poll: take, ack, beat, retrieve } = await newPlace(server);
  const changed = await hold(t, database, (held) =>
    changeSettings(held, environment.id, { startupLeaseSeconds: 1, maxHandOuts: 1 }, DEFAULT_SETTINGS),
  );
  const id = await enqueue('session');
  t.equal((await take()).json?.id, id);
  t.equal((await ack(id)).status, 200);
  t.equal((await beat(id, 'NO_HEARTBEAT')).status, 200);
  await lapse(database, id, 10);
  await queue.sweep();
  t.match((await retrieve(id)).json, { state: 'queued' });
  await changed.rollback();
  const [row] = await database.rows(
    sql`select max_hand_outs as cap from ${database.names.environments} where id = ${environment.id}`,
  );
  t.strictSame(row, { cap: null });
});
