import { sql } from 'kysely';
import t from 'tap';
import type { Database } from '../../src/db/connect.ts';
import { cancelSession } from '../../src/queue/cancel-session.ts';
import { heartbeat } from '../../src/queue/heartbeat.ts';
import { holderByToken } from '../../src/queue/holder.ts';
import { reportOutcome } from '../../src/queue/outcome.ts';
import { poll } from '../../src/queue/poll.ts';
import { release } from '../../src/queue/release.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { sweep } from '../../src/queue/sweep.ts';
import { type Answer, lapse, OPERATOR_KEY, rowOf, type Server, testServer } from '../support/harness.ts';
import { beat, hold, holding } from '../support/interleave.ts';
import { rowBySeq } from '../support/places.ts';

type Held = Awaited<ReturnType<typeof holdOne>>;

const server: Server = await testServer(t);
const { database, environment } = server;

/** The one item that there is. */
async function holdOne() {
  await database.rows(sql`delete from ${database.names.workItems}`);
  const held = await holding(server, 'session', 'active');
  const { seq } = await rowOf(database, held.id);
  return { server, database, environmentId: environment.id, seq, ...held, row: () => rowBySeq(database, seq) };
}

/** What holders say, as a statement and as a request. */
type Verb = {
  act(database: Database, held: Held): Promise<unknown>;
  ask(held: Held): Promise<Answer>;
};

const path = ({ environmentId, id }: Held) => `/control/v1/environments/${environmentId}/work/${id}`;
const ref = (held: Held) => holderByToken(held, held.sessionsToken);
const report = (body: { status: 'succeeded'; result: number } | { status: 'failed' }): Verb => ({
  act: (database, held) => reportOutcome(database, { ...ref(held), ...body, reason: 'worker' }, DEFAULT_SETTINGS),
  ask: (held) => held.server.call('PATCH', path(held), { as: held.sessionsToken, body }),
});
const OURS = {
  release: {
    act: (database, held) => release(database, { ...ref(held), delayMs: 0 }),
    ask: (held) => held.server.call('POST', `${path(held)}/release`, { as: held.sessionsToken }),
  },
  succeeded: report({ status: 'succeeded', result: 1 }),
  failed: report({ status: 'failed' }),
} as const satisfies Record<string, Verb>;
type Ours = keyof typeof OURS;

const LOOK = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };
const work = ({ server, id }: Held, call: string) => server.work(`/${id}${call}`);
const stopped = (force: boolean): Verb => ({
  act: (database, held) => stop(database, [{ ...held, force, reason: 'worker' }]),
  ask: (held) => held.server.call('POST', work(held, '/stop'), { body: { force } }),
});
const OTHERS = {
  heartbeat: {
    act: (database, held) => {
      const request = { ...held, expectedLastHeartbeat: held.heartbeat, desiredTtlSeconds: 60, isRetry: false };
      return heartbeat(database, [request], DEFAULT_SETTINGS);
    },
    ask: (held) => beat(held.server, held.id, held.heartbeat),
  },
  stop: stopped(false),
  'forced stop': stopped(true),
  cancel: {
    act: (database, { environmentId }) => cancelSession(database, environmentId, 'session'),
    ask: ({ server, environmentId }) =>
      server.call('POST', `/control/v1/environments/${environmentId}/work/cancel`, {
        ...{ as: OPERATOR_KEY, body: { data: { type: 'session', id: 'session' } } },
      }),
  },
} as const satisfies Record<string, Verb>;

type Told = readonly [status: number, json?: object];
type Row = readonly [state: string, reason: string | null];
const ANSWERS = {
  release: {
    queued: [200, { state: 'queued' }],
    stopped: [200, { state: 'stopped' }],
    over: [200, { state: 'stopped' }],
  },
  succeeded: { queued: [200, { state: 'stopped' }], stopped: [200, { state: 'stopped' }], over: [409] },
  failed: { queued: [200, { state: 'queued' }], stopped: [200, { state: 'stopped' }], over: [409] },
} as const satisfies Record<Ours, Record<string, Told>>;
const LATER: Record<Ours, Row> = {
  release: ['queued', null],
  succeeded: ['stopped', 'worker'],
  failed: ['queued', null],
};

/** What ours is told and leaves when the other was first, and the other when ours was. */
const PAIRS: Record<keyof typeof OTHERS, (ours: Ours) => { second: Told; row: Row; other: Told; left: Row }> = {
  heartbeat: (ours) => ({
    ...{ second: ANSWERS[ours].queued, row: LATER[ours], left: LATER[ours] },
    other: ours === 'succeeded' ? [200, { lease_extended: false, state: 'stopped' }] : [404],
  }),
  stop: (ours) => ({
    ...{ second: ANSWERS[ours].stopped, row: ['stopped', 'worker'], left: LATER[ours] },
    other: ours === 'succeeded' ? [409] : [404],
  }),
  'forced stop': (ours) => ({
    ...{ second: ANSWERS[ours].over, row: ['stopped', 'worker'], left: LATER[ours] },
    other: ours === 'succeeded' ? [409] : [404],
  }),
  cancel: (ours) => ({
    ...{ second: ANSWERS[ours].over, row: ['stopped', 'cancelled'], other: [200] },
    left: ours === 'succeeded' ? LATER[ours] : ['stopped', 'cancelled'],
  }),
};

for (const [name, other] of Object.entries(OTHERS) as [keyof typeof OTHERS, Verb][]) {
  for (const [ours, verb] of Object.entries(OURS) as [Ours, Verb][]) {
    const expected = PAIRS[name](ours);

    t.test(`${ours} that waits for a ${name} acts on what that has left`, async (t) => {
      const held = await holdOne();
      const first = await hold(t, held.database, (database) => other.act(database, held));
      const second = verb.ask(held);
      await first.untilBlocked();
      await first.commit();
      const { status, json } = await second;
      t.match([status, json], expected.second);
      const { state, stop_reason: reason } = await held.row();
      t.same([state, reason], expected.row);
    });

    t.test(`a ${name} that waits for ${ours} finds what that has left`, async (t) => {
      const held = await holdOne();
      const first = await hold(t, held.database, (database) => verb.act(database, held));
      const second = other.ask(held);
      await first.untilBlocked();
      await first.commit();
      const { status, json } = await second;
      t.match([status, json], expected.other);
      const { state, stop_reason: reason } = await held.row();
      t.same([state, reason], expected.left);
    });
  }
}

for (const [ours, verb] of Object.entries(OURS) as [Ours, Verb][]) {
  for (const end of ['commit', 'rollback'] as const) {
    t.test(`${ours}, sent again while the first still runs, is answered the same and done once; ${end}`, async (t) => {
      const held = await holdOne();
      const first = await hold(t, held.database, (database) => verb.act(database, held));
      const again = verb.ask(held);
      await first.untilBlocked();
      await first[end]();
      const { status, json } = await again;
      t.equal(status, 200);
      t.match(json, { state: LATER[ours][0] });
      t.match(await held.row(), {
        state: LATER[ours][0],
        attempt: ours === 'failed' ? 2 : 1,
        stop_reason: LATER[ours][1],
      });
    });
  }

  t.test(`${ours} that waits for the re-hand-out of what has lapsed changes nothing`, async (t) => {
    const held = await holdOne();
    await lapse(held.database, held.id);
    const taker = { workerId: 'next', reclaimOlderThanMs: 60_000 };
    const first = await hold(t, held.database, (database) => poll(database, held.environmentId, [taker], LOOK));
    const second = verb.ask(held);
    await first.untilBlocked();
    await first.commit();
    t.equal((await second).status, 404);
    t.match(await held.row(), { state: 'queued', worker_id: 'next', hand_out_count: 2, attempt: 1 });
  });

  t.test(`${ours} that waits for the sweep of what has lapsed changes nothing`, async (t) => {
    const held = await holdOne();
    await lapse(held.database, held.id, 3);
    const first = await hold(t, held.database, (database) => sweep(database, DEFAULT_SETTINGS));
    const second = verb.ask(held);
    await first.untilBlocked();
    await first.commit();
    t.equal((await second).status, 412);
    t.match(await held.row(), { id: held.id, state: 'queued', lapsed_state: 'active', hand_out_count: 1, attempt: 1 });
  });

  t.test(`a poll passes by what ${ours} is about, and finds it where it was given back`, async (t) => {
    const held = await holdOne();
    const { call, work } = held.server;
    const first = await hold(t, held.database, (database) => verb.act(database, held));
    t.equal((await call('GET', work('/poll'))).json, null);
    await first.commit();
    const { json } = await call('GET', work('/poll'));
    t.equal(json?.id, ours === 'release' ? (await held.row()).id : undefined);
  });
}
