import { type Connection, openAll, textOf } from './connection.ts';
import { Samples } from './samples.ts';
import { expect, requestTo, type Scenario, type Target } from './scenario.ts';

export type Lease = { readonly id: string; readonly token: string };

export type HeartbeatsOptions = Target & {
  readonly environmentId: string;
  readonly leases: readonly Lease[];
  readonly connections: number;
  /** Of each lease. */
  readonly intervalMs: number;
  /** A lease whose heartbeats are counted apart: the others are its neighbours. */
  readonly apartId?: string;
};

const TICK_MS = 1;
const LAST_HEARTBEAT = Buffer.from('"last_heartbeat":"');

/**
 * Renews leases at their cadence, whether or not the server keeps up: a heartbeat's time runs from when it is due. A lease that still waits for its
 * answer is not asked for again.
 */
export async function heartbeats(options: HeartbeatsOptions): Promise<Scenario> {
  const { environmentId, intervalMs, apartId } = options;
  const free = await openAll(options.url, options.connections);
  const all = [...free];
  const requests = new Map(all.map((connection, n) => [connection, requestTo(options, `worker-${n}`)]));
  const [heartbeat, apart, skipped] = [new Samples(), new Samples(), new Samples()];
  const leases = options.leases.map((lease) => ({ ...lease, isAsked: false }));
  const { promise: done, resolve } = Promise.withResolvers<void>();
  const waiting: { lease: (typeof leases)[number]; dueAt: number }[] = [];
  let [next, beganAt, isStopped] = [0, 0, false];
  let clock: NodeJS.Timeout | undefined;

  const tick = () => {
    // Lease n of the round is due n intervals' parts after its beginning.
    const due = Math.floor(((performance.now() - beganAt) / intervalMs) * leases.length) + 1;
    for (; next < due; next++) {
      const lease = leases[next % leases.length];
      const dueAt = beganAt + (next / leases.length) * intervalMs;
      if (lease === undefined) continue;
      if (lease.isAsked) skipped.add(0);
      else {
        lease.isAsked = true;
        waiting.push({ lease, dueAt });
      }
    }
    send();
  };
  const send = () => {
    while (waiting.length > 0 && free.length > 0) {
      // In turn: one that is left alone for a minute is told that it has timed out.
      const [connection, first] = [free.shift(), waiting.shift()];
      if (connection !== undefined && first !== undefined) beat(connection, first.lease, first.dueAt);
    }
  };
  const beat = (connection: Connection, lease: (typeof leases)[number], dueAt: number) => {
    const path = `/v1/environments/${environmentId}/work/${lease.id}/heartbeat?expected_last_heartbeat=${lease.token}`;
    const request = requests.get(connection)?.('POST', path) ?? '';
    connection.ask(request, (status, bytes, start, end) => {
      (lease.id === apartId ? apart : heartbeat).add(performance.now() - dueAt);
      lease.isAsked = false;
      free.push(connection);
      // The row that is held is refused when the lock timeout has passed: it is not the one that is measured.
      if (lease.id !== apartId || status === 200) {
        expect(200, 'a heartbeat', status, bytes, start, end);
        lease.token = textOf(LAST_HEARTBEAT, bytes, start, end);
      }
      if (isStopped && free.length === all.length) resolve();
      else if (!isStopped) send();
    });
  };

  return {
    samples: { heartbeat, apart, skipped },
    done,
    start() {
      beganAt = performance.now();
      clock = setInterval(tick, TICK_MS);
    },
    stop() {
      isStopped = true;
      clearInterval(clock);
      waiting.length = 0;
      if (free.length === all.length) resolve();
    },
    close() {
      for (const connection of all) connection.close();
    },
  };
}
