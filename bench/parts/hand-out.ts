import { makePlace } from '../support/call.ts';
import { startDatabases } from '../support/databases.ts';
import { needSockets } from '../support/descriptors.ts';
import { digits, digitsOf, median } from '../support/figures.ts';
import { type Measured, startLoad } from '../support/load.ts';
import type { Counts, Report } from '../support/report.ts';
import { settle } from '../support/rows.ts';
import { OPERATOR_KEY, startWorkServer } from '../support/servers.ts';

const WAITERS = 1_000;
const ITEMS = 500;
const PAUSE_MS = 15;
const P50_MS_MAX = 5;
const P99_MS_MAX = 25;

/** From an enqueue on one replica to the answer of a poll that waits on another. */
export async function handOut({ rounds, isQuick }: Counts): Promise<Report> {
  needSockets(WAITERS);
  await using postgres = await startDatabases();
  const url = await postgres.create('ours');
  await using polled = await startWorkServer(url);
  await using fed = await startWorkServer(url);
  await using load = startLoad();
  const place = await makePlace(polled.url);
  const database = await postgres.open('ours');
  const enqueueing = { url: fed.url, key: OPERATOR_KEY };
  const results: Measured[] = [];
  for (let round = -1; round < rounds; round++) {
    const items = isQuick || round < 0 ? ITEMS / 5 : ITEMS;
    const options = { ...place, enqueueing, waiters: WAITERS, items, pauseMs: PAUSE_MS };
    const running = await load.begin('handOuts', options, { server: polled.pid, postgres: postgres.pid });
    const measured = await running.finish();
    if (round < 0) await settle(database);
    else results.push(measured);
  }
  const of = (name: string, q: 'p50' | 'p99') => results.map(({ calls }) => calls[name]?.[q] ?? Number.NaN);
  const [p50, p99] = [of('handOut', 'p50'), of('handOut', 'p99')];
  const share = (who: 'server' | 'postgres' | 'load') =>
    digits(median(results.map(({ cpu, seconds }) => (cpu[who] / seconds) * 100)));
  const polls = median(results.map(({ calls, seconds }) => (calls.empty?.count ?? 0) / seconds));
  const early = median(results.map(({ calls }) => (calls.early?.count ?? 0) / (calls.handOut?.count ?? 0)));
  return {
    rows: [
      {
        part: 'hand-out',
        what: `${WAITERS} polls wait on one replica, items come through another: ms p50 / p99`,
        figure: `${digitsOf(p50)} / ${digitsOf(p99)}`,
        note: `from the enqueue's answer; in ${digits(early * 100)} % the poll was answered first, counted as 0; ${digits(polls)} empty polls/s; of a core: server ${share('server')} %, Postgres ${share('postgres')} %, load ${share('load')} %`,
      },
      {
        part: 'hand-out',
        what: 'the enqueue itself: ms p50 / p99',
        figure: `${digitsOf(of('enqueue', 'p50'))} / ${digitsOf(of('enqueue', 'p99'))}`,
      },
    ],
    floors: [
      {
        what: 'hand-out through another replica, ms p50 / p99',
        wanted: `<= ${P50_MS_MAX} / ${P99_MS_MAX}`,
        measured: `${digits(median(p50))} / ${digits(median(p99))}`,
        isReached: median(p50) <= P50_MS_MAX && median(p99) <= P99_MS_MAX,
      },
    ],
  };
}
