import { sql } from 'kysely';
import { startDatabases } from '../support/databases.ts';
import { needSockets } from '../support/descriptors.ts';
import { digits, digitsOf, median, spread } from '../support/figures.ts';
import { type Measured, startLoad } from '../support/load.ts';
import type { Counts, Floor, Report } from '../support/report.ts';
import { insertPlaces, settle } from '../support/rows.ts';
import { startWorkServer } from '../support/servers.ts';
import { COUNTING, countStatements } from '../support/statements.ts';
import { pause } from '../support/waiting.ts';

/** What the official workers sleep after an empty poll. */
const SLEEP_MS = [1_000, 3_000] as const;
/** Every worker has polled by then, and what came of that is over. */
const WARMING_UP_MS = 8_000;
const SECONDS_TIMES = 4;

/** Idle workers at the official cadence: what they cost the database and the server. */
export async function idle({ rounds, seconds, callersMany, isQuick }: Counts): Promise<Report> {
  const few = callersMany / 5;
  needSockets(callersMany);
  await using postgres = await startDatabases(COUNTING);
  await using server = await startWorkServer(await postgres.create('ours'));
  await using load = startLoad();
  const counter = await postgres.open('postgres');
  await counter.rows(sql`create extension pg_stat_statements`);
  const database = await postgres.open('ours');
  const places = await insertPlaces(database, server.url, callersMany);
  await settle(database);
  const cases = [
    { workers: few, environments: 1, statementsMax: undefined },
    { workers: callersMany, environments: 1, statementsMax: 5 },
    { workers: callersMany, environments: callersMany, statementsMax: 20 },
  ].map((one) => ({ ...one, results: [] as { measured: Measured; statements: number }[] }));
  for (let round = 0; round < Math.min(rounds, 3); round++) {
    for (const { workers, environments, results } of cases) {
      const options = { url: server.url, places: places.slice(0, environments), workers, sleepMs: SLEEP_MS };
      const running = await load.begin('polls', options, { server: server.pid, postgres: postgres.pid });
      await pause(isQuick ? WARMING_UP_MS / 2 : WARMING_UP_MS);
      await running.take();
      const before = await countStatements(counter, 'ours');
      await pause(seconds * 1_000 * SECONDS_TIMES);
      const [after, measured] = [await countStatements(counter, 'ours'), await running.take()];
      results.push({ measured, statements: (after - before) / measured.seconds });
      await running.stop();
    }
  }
  const floors: Floor[] = [];
  const rows = cases.map(({ workers, environments, statementsMax, results }) => {
    const what = `${workers} idle workers, ${environments === 1 ? 'one environment' : `${environments} environments`}`;
    const statements = spread(results.map((result) => result.statements));
    if (statementsMax !== undefined) {
      floors.push({
        what: `statements/s, ${what}`,
        wanted: `<= ${statementsMax}`,
        measured: digits(statements.median),
        isReached: statements.median <= statementsMax,
      });
    }
    const of = (figure: (measured: Measured) => number) => digits(median(results.map((r) => figure(r.measured))));
    const share = (who: 'server' | 'postgres' | 'load') => of(({ cpu, seconds }) => (cpu[who] / seconds) * 100);
    const polls = of(({ calls, seconds }) => (calls.empty?.count ?? 0) / seconds);
    return {
      part: 'idle',
      what: `${what}: statements/s`,
      figure: digitsOf(results.map((result) => result.statements)),
      note: `of a core: server ${share('server')} %, Postgres ${share('postgres')} %, load ${share('load')} %; ${polls} polls/s`,
    };
  });
  return { rows, floors };
}
