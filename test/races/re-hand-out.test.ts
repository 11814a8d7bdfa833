import t from 'tap';
import type { Database } from '../../src/db/connect.ts';
import { ack } from '../../src/queue/ack.ts';
import { heartbeat } from '../../src/queue/heartbeat.ts';
import { poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { lapse, rowOf, type Server, testServer } from '../support/harness.ts';
import { hold, holding, type Stage } from '../support/interleave.ts';

const LOOK = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };

const taker = { workerId: null, reclaimOlderThanMs: 60_000 };

type Call = {
  /** The path below the item, for a holder of `token`. */
  path(token: string): string;
  body?: object;
  /** The same as a statement. */
  verb(database: Database, environmentId: string, id: string, token: string): Promise<unknown[]>;
  /** What a poll finds after it: null unless the item was let go. */
  becomes: string;
};

const CALLS = {
  ack: {
    path: () => '/ack',
    verb: (database, environmentId, id) => ack(database, [{ environmentId, id }], DEFAULT_SETTINGS),
    becomes: 'starting',
  },
  heartbeat: {
    path: (token) => `/heartbeat?expected_last_heartbeat=${encodeURIComponent(token)}`,
    verb: (database, environmentId, id, token) =>
      heartbeat(
        database,
        [{ environmentId, id, expectedLastHeartbeat: token, desiredTtlSeconds: 120, isRetry: false }],
        DEFAULT_SETTINGS,
      ),
    becomes: 'active',
  },
  'forced stop': {
    path: () => '/stop',
    body: { force: true },
    verb: (database, environmentId, id) => stop(database, [{ environmentId, id, force: true, reason: 'worker' }]),
    becomes: 'stopped',
  },
} as const satisfies Record<string, Call>;

const PAIRS: readonly { stage: Stage; name: keyof typeof CALLS }[] = [
  { stage: 'reserved', name: 'ack' },
  { stage: 'starting', name: 'heartbeat' },
  { stage: 'active', name: 'heartbeat' },
  { stage: 'reserved', name: 'forced stop' },
  { stage: 'active', name: 'forced stop' },
];

for (const { stage, name } of PAIRS) {
  const { path, verb, becomes, ...rest }: Call = CALLS[name];

  t.test(`${name} of a lapsed item (${stage}) that waits for its re-hand-out is 404 and changes nothing`, async (t) => {
    const { database, environment, server, id, heartbeat: token } = await lapsed(t, stage);
    const polled = await hold(t, database, async (held) => {
      const {
        handOuts: [handOut],
      } = await poll(held, environment.id, [taker], LOOK);
      return rowOf(held, handOut?.item.id ?? '');
    });
    const row = polled.answer;
    const answer = server.call('POST', server.work(`/${id}${path(token)}`), rest);
    await polled.untilBlocked();
    await polled.commit();
    t.match(await answer, { status: 404, json: { error: { type: 'not_found_error' } } });
    t.not(row.id, id);
    t.same(await rowOf(database, row.id ?? ''), row);
    t.match(row, { state: 'queued', hand_out_count: 2, last_heartbeat: null, acknowledged_at: null });
  });

  t.test(`a poll passes by a lapsed item (${stage}) that is being saved by ${name}`, async (t) => {
    const { database, environment, server, id, heartbeat: token } = await lapsed(t, stage);
    const { call, work } = server;
    const saved = await hold(t, database, (held) => verb(held, environment.id, id, token));
    t.notOk(saved.answer[0] instanceof Error, 'it was not refused');
    t.equal((await call('GET', work('/poll'))).json, null, 'while it is being saved');
    await saved.commit();
    t.equal((await call('GET', work('/poll'))).json, null, 'once it is saved');
    t.match((await call('GET', work(`/${id}`))).json, { id, state: becomes });
  });
}

const OLD_HOLDER = [
  ['ack', 'POST', () => '/ack', undefined],
  ['heartbeat with its token', 'POST', (token: string) => `/heartbeat?expected_last_heartbeat=${token}`, undefined],
  ['heartbeat NO_HEARTBEAT', 'POST', () => '/heartbeat?expected_last_heartbeat=NO_HEARTBEAT', undefined],
  ['stop', 'POST', () => '/stop', undefined],
  ['forced stop', 'POST', () => '/stop', { force: true }],
] as const;

for (const stage of ['reserved', 'starting', 'active'] as const) {
  for (const next of ['reserved', 'active'] as const) {
    t.test(`the old holder (${stage}) of an item that was handed out again (${next}) reaches nothing`, async (t) => {
      const { database, server, id, heartbeat: token, sessionsToken } = await lapsed(t, stage);
      const { call, work } = server;
      const fresh = (await call('GET', work('/poll'))).json.id;
      t.not(fresh, id);
      if (next === 'active') {
        await call('POST', work(`/${fresh}/ack`));
        await call('POST', work(`/${fresh}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`));
      }
      const row = await rowOf(database, fresh);
      for (const [name, method, path, body] of OLD_HOLDER) {
        for (const [credential, as] of [
          ['environment key', server.environmentKey],
          ['sessions token', sessionsToken],
        ] as const) {
          for (const headers of [{}, { 'x-stainless-retry-count': '1' }]) {
            const options = { as, headers, ...(body === undefined ? {} : { body }) };
            const { status, json } = await call(method, work(`/${id}${path(encodeURIComponent(token))}`), options);
            t.equal(status, 404, `${name} with the ${credential}`);
            t.match(json.error, { type: 'not_found_error', message: /handed out again under a new id/ });
          }
          t.same(await rowOf(database, fresh), row, 'the row is as it was');
        }
        const trespass = await call(method, work(`/${fresh}${path(encodeURIComponent(token))}`), {
          as: sessionsToken,
          ...(body === undefined ? {} : { body }),
        });
        t.equal(trespass.status, 403, `${name} on the new id with the old sessions token`);
        t.same(await rowOf(database, fresh), row, 'the row is as it was');
      }
      for (const [method, body] of [
        ['GET', undefined],
        ['POST', { metadata: { a: 'b' } }],
      ] as const) {
        const { status } = await call(method, work(`/${id}`), body === undefined ? {} : { body });
        t.equal(status, 404, `${method} of the old id`);
      }
      t.same(await rowOf(database, fresh), row);
    });
  }
}

/** An item whose holder let its lease lapse. */
async function lapsed(t: Parameters<typeof testServer>[0], stage: Stage) {
  const server: Server = await testServer(t);
  const held = await holding(server, 'session', stage);
  await lapse(server.database, held.id);
  return { server, database: server.database, environment: server.environment, ...held };
}
