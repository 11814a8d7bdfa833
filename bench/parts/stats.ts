import { stats as readStats } from '../../src/queue/stats.ts';
import { Samples } from '../load/samples.ts';
import { makePlace } from '../support/call.ts';
import { startDatabases } from '../support/databases.ts';
import { digits } from '../support/figures.ts';
import { runFor, startLoad } from '../support/load.ts';
import type { Counts, Report } from '../support/report.ts';
import { insertFinished, insertLeases, insertQueued, settle } from '../support/rows.ts';
import { startWorkServer } from '../support/servers.ts';

/** So that one answer in about twenty is read anew: they are kept for a second. */
const PAUSE_MS = 50;
const STATEMENTS = 500;
const P99_MS_MAX = 20;
const SECONDS_TIMES = 10;

/** Figures of one environment among many finished rows. Of the live ones half are queued and half are active. */
export async function stats({ seconds, rowsMany, rowsSome, isQuick }: Counts): Promise<Report> {
  await using postgres = await startDatabases();
  await using server = await startWorkServer(await postgres.create('ours'));
  await using load = startLoad();
  const place = await makePlace(server.url);
  const database = await postgres.open('ours');
  await insertFinished(database, place.environmentId, rowsMany);
  await insertQueued(database, place.environmentId, rowsSome / 2);
  await insertLeases(database, place.environmentId, rowsSome / 2);
  await settle(database);

  const path = `/v1/environments/${place.environmentId}/work/stats`;
  const running = await load.begin('requests', { ...place, path, clients: 1, pauseMs: PAUSE_MS });
  const { get } = (await runFor(seconds * SECONDS_TIMES * 1_000, running)).calls;
  const alone = new Samples();
  for (let n = 0; n < (isQuick ? STATEMENTS / 10 : STATEMENTS); n++) {
    const beganAt = performance.now();
    const { depth } = await readStats(database, place.environmentId);
    alone.add(performance.now() - beganAt);
    if (depth !== rowsSome / 2) throw new Error(`${depth} are queued`);
  }
  const statement = alone.take();
  const rows = [
    { what: 'GET stats as shipped, about 20 times a second: ms p50 / p99', times: get },
    { what: 'the statement alone: ms p50 / p99', times: statement },
  ].map(({ what, times }) => ({
    part: 'stats',
    what: `${rowsMany.toLocaleString('en-US')} finished, ${rowsSome.toLocaleString('en-US')} live, ${what}`,
    figure: `${digits(times?.p50 ?? Number.NaN)} / ${digits(times?.p99 ?? Number.NaN)}`,
    note: `${times?.count} times`,
  }));
  const worst = Math.max(get?.p99 ?? Number.NaN, statement.p99);
  return {
    rows,
    floors: [
      {
        what: 'stats, ms p99, as shipped and alone',
        wanted: `<= ${P99_MS_MAX}`,
        measured: `${digits(get?.p99 ?? Number.NaN)}, ${digits(statement.p99)}`,
        isReached: worst <= P99_MS_MAX,
      },
    ],
  };
}
