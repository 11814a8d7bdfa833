import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import { makePlace } from '../support/call.ts';
import { startDatabases } from '../support/databases.ts';
import { digits, digitsOf, median } from '../support/figures.ts';
import { type Measured, startLoad } from '../support/load.ts';
import type { Counts, Report } from '../support/report.ts';
import { insertFinished, insertQueued, settle } from '../support/rows.ts';
import { OPERATOR_KEY, startWorkServer } from '../support/servers.ts';
import { callsPerSecond, timesOf } from '../support/shares.ts';
import { pause, until } from '../support/waiting.ts';

const CALLS = ['poll', 'ack', 'heartbeat', 'stop'] as const;
const CLIENTS = 16;
const PAUSE_MS = 20;
const QUEUED = 100;
const ROUNDS_MAX = 3;
/** As long as the removal takes, about. */
const SECONDS_TIMES = 4;
/** Retention is looked after every ten seconds. */
const REMOVAL_MS_MAX = 120_000;
const DAYS_AGO = 3;

/** What workers notice of retention that removes another environment's finished rows; in turns with none to remove. */
export async function retention({ rounds, seconds, rowsMany }: Counts): Promise<Report> {
  const count = rowsMany / 10;
  await using postgres = await startDatabases();
  await using server = await startWorkServer(await postgres.create('ours'));
  await using load = startLoad();
  const database = await postgres.open('ours');
  const [place, other] = [await makePlace(server.url, 'busy'), await makePlace(server.url, 'finished')];
  await insertQueued(database, place.environmentId, QUEUED);
  const results: { without: Measured; during: Measured }[] = [];
  for (let round = -1; round < Math.min(rounds, ROUNDS_MAX); round++) {
    await keepDays(database, other.environmentId, null);
    await insertFinished(database, other.environmentId, count, DAYS_AGO);
    await settle(database);
    const options = { ...place, clients: CLIENTS, refillKey: OPERATOR_KEY, pauseMs: PAUSE_MS };
    const running = await load.begin('cycles', options);
    await pause(seconds * 500);
    await running.take();
    await pause(seconds * 1_000 * SECONDS_TIMES);
    const without = await running.take();
    const first = await oldest(database, other.environmentId);
    await keepDays(database, other.environmentId, 1);
    await until(async () => (await oldest(database, other.environmentId)) !== first, REMOVAL_MS_MAX);
    await running.take();
    await until(async () => (await oldest(database, other.environmentId)) === null, REMOVAL_MS_MAX);
    const during = await running.take();
    if (round >= 0) results.push({ without, during });
    await running.stop();
  }
  const during = results.map((result) => result.during);
  const took = digits(median(during.map((measured) => measured.seconds)));
  const rows = CALLS.map((name) => {
    const meanwhile = timesOf(during, name, 'p99');
    const without = timesOf(
      results.map((result) => result.without),
      name,
      'p99',
    );
    const ratios = meanwhile.map((ms, round) => ms / (without[round] ?? Number.NaN));
    return {
      part: 'retention',
      what: `${count.toLocaleString('en-US')} rows are removed: ${name}, ms p99`,
      figure: digitsOf(meanwhile),
      note: `without ${digitsOf(without)}: ${digitsOf(ratios)} times; it took ${took} s, at ${digits(callsPerSecond(during, 'stop'))} cycles/s`,
    };
  });
  return { rows, floors: [] };
}

async function keepDays(database: Database, environmentId: string, days: number | null): Promise<void> {
  await database.rows(
    sql`update ${database.names.environments} set retention_days = ${days}::integer where id = ${environmentId}`,
  );
}

/** When the one finished that is removed next; null when there is none. */
async function oldest(database: Database, environmentId: string): Promise<string | null> {
  const [row] = await database.rows(sql<{ at: string }>`
    select w.stopped_at::text as at from ${database.names.workItems} w
    where w.environment_id = ${environmentId} and w.state = 'stopped' order by w.stopped_at limit 1`);
  return row?.at ?? null;
}
