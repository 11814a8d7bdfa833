import t from 'tap';
import { heartbeat } from '../../src/queue/heartbeat.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { rowOf, testServer } from '../support/harness.ts';
import { beat, hold, holding, type Stage } from '../support/interleave.ts';

const STOPPED_FIRST = [
  { stage: 'active', force: false, status: 200, state: 'stopping' },
  { stage: 'active', force: true, status: 200, state: 'stopped' },
  { stage: 'stopping', force: true, status: 200, state: 'stopped' },
  { stage: 'starting', force: false, status: 412, state: 'stopped' },
  { stage: 'starting', force: true, status: 412, state: 'stopped' },
] as const satisfies { stage: Stage; force: boolean; status: number; state: string }[];

for (const { stage, force, status, state } of STOPPED_FIRST) {
  for (const headers of [{}, { 'x-stainless-retry-count': '1' }]) {
    const marked = 'x-stainless-retry-count' in headers ? 'retried ' : '';
    t.test(`a ${marked}heartbeat that waits for a stop (${stage}, force ${force}) does not revive`, async (t) => {
      const server = await testServer(t);
      const { database, environment } = server;
      const { id, heartbeat: token } = await holding(server, 'session', stage);
      const stopped = await hold(t, database, (held) =>
        stop(held, [{ environmentId: environment.id, id, force, reason: 'worker' }]),
      );
      const beaten = beat(server, id, token, headers);
      await stopped.untilBlocked();
      await stopped.commit();
      const { status: answered, json } = await beaten;
      t.equal(answered, status);
      const seen = status === 200 ? json : json.error.details.current_state;
      t.match(seen, { state, lease_extended: false, last_heartbeat: token === 'NO_HEARTBEAT' ? null : token });
      const row = await rowOf(database, id);
      t.match(row, { state, stopped_at: state === 'stopping' ? null : String });
      t.equal((await beat(server, id, token, headers)).status, status, 'nor a later one');
      t.same(await rowOf(database, id), row);
    });
  }
}

for (const stage of ['starting', 'active'] as const) {
  for (const force of [false, true]) {
    t.test(`a stop (force ${force}) that waits for a heartbeat (${stage}) ends what the heartbeat left`, async (t) => {
      const server = await testServer(t);
      const { database, environment, call, work } = server;
      const { id, heartbeat: token } = await holding(server, 'session', stage);
      const beaten = await hold(t, database, (held) =>
        heartbeat(
          held,
          [{ environmentId: environment.id, id, expectedLastHeartbeat: token, desiredTtlSeconds: 120, isRetry: false }],
          DEFAULT_SETTINGS,
        ),
      );
      const stopped = call('POST', work(`/${id}/stop`), { body: { force } });
      await beaten.untilBlocked();
      await beaten.commit();
      t.equal((await stopped).status, 204);
      // Active by then, also where the stop came upon a starting item: it winds down unless it is forced.
      const [extended] = beaten.answer;
      if (typeof extended !== 'object' || extended instanceof Error) throw new Error('the heartbeat was refused');
      const item = (await call('GET', work(`/${id}`))).json;
      t.match(item, { state: force ? 'stopped' : 'stopping', latest_heartbeat_at: extended.lastHeartbeat });
      const row = await rowOf(database, id);
      t.equal(row.lease_expires_at === null, force, 'a stopping item keeps the lease of the heartbeat');
      t.match((await beat(server, id, extended.lastHeartbeat ?? '')).json, { lease_extended: false });
      t.same(await rowOf(database, id), row);
    });
  }
}
