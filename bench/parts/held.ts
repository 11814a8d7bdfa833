import { sql } from 'kysely';
import { makePlace } from '../support/call.ts';
import { startDatabases } from '../support/databases.ts';
import { digits, digitsOf } from '../support/figures.ts';
import { type Measured, startLoad } from '../support/load.ts';
import type { Counts, Report } from '../support/report.ts';
import { insertLeases, settle } from '../support/rows.ts';
import { startWorkServer } from '../support/servers.ts';
import { callsPerSecond, timesOf } from '../support/shares.ts';
import { pause } from '../support/waiting.ts';

const HELD_MS = 5_000;
const LEASES = 200;
const INTERVAL_MS = 200;
const CONNECTIONS = 32;
const ROUNDS_MAX = 3;

/** What its neighbours notice of a row that a transaction holds while its heartbeat waits; in turns with nobody holding it. */
export async function held({ rounds, isQuick }: Counts): Promise<Report> {
  const heldMs = isQuick ? HELD_MS / 5 : HELD_MS;
  await using postgres = await startDatabases();
  // It may complain: when the lock timeout has passed, the heartbeat of the row that is held is refused.
  await using server = await startWorkServer(await postgres.create('ours'), 'src/main.ts', { onLine() {} });
  await using load = startLoad();
  const database = await postgres.open('ours');
  const place = await makePlace(server.url);
  const leases = await insertLeases(database, place.environmentId, LEASES);
  await settle(database);
  const [apart] = leases;
  if (apart === undefined) throw new Error('no leases');
  const options = { ...place, leases, connections: CONNECTIONS, intervalMs: INTERVAL_MS, apartId: apart.id };
  const running = await load.begin('heartbeats', options);
  const results: { without: Measured; during: Measured }[] = [];
  for (let round = -1; round < Math.min(rounds, ROUNDS_MAX); round++) {
    await running.take();
    await pause(heldMs);
    const without = await running.take();
    const during = await database.transaction(async (transaction) => {
      const row = sql`select from ${database.names.workItems} where id = ${apart.id} for update`;
      await database.rows(row, transaction);
      await running.take();
      await pause(heldMs);
      return running.take();
    });
    if (round >= 0) results.push({ without, during });
    await pause(heldMs / 5);
  }
  await running.stop();
  const during = results.map((result) => result.during);
  const meanwhile = timesOf(during, 'heartbeat', 'p99');
  const without = timesOf(
    results.map((result) => result.without),
    'heartbeat',
    'p99',
  );
  const ratios = meanwhile.map((ms, round) => ms / (without[round] ?? Number.NaN));
  return {
    rows: [
      {
        part: 'held',
        what: `a row is held for ${heldMs / 1_000} s: its neighbours' heartbeat, ms p99`,
        figure: digitsOf(meanwhile),
        note: `without ${digitsOf(without)}: ${digitsOf(ratios)} times; ${digits(callsPerSecond(during, 'heartbeat'))} heartbeats/s`,
      },
    ],
    floors: [],
  };
}
