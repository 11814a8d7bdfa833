import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import { makePlace } from '../support/call.ts';
import { startDatabases } from '../support/databases.ts';
import { digits } from '../support/figures.ts';
import { startLoad } from '../support/load.ts';
import type { Counts, Report } from '../support/report.ts';
import { insertLeases, settle } from '../support/rows.ts';
import { startWorkServer } from '../support/servers.ts';
import { sharesOf } from '../support/shares.ts';
import { pause } from '../support/waiting.ts';

/** As official clients beat. */
const INTERVAL_MS = 30_000;
const CONNECTIONS = 256;
/** A backend tells what it did within a second while it works, and within ten when it is idle. */
const TOLD_MS = 11_000;

/** Many active leases, renewed at their cadence over HTTP through one server; after a round of each lease that is not counted. */
export async function leases({ rowsSome, isQuick }: Counts): Promise<Report> {
  await using postgres = await startDatabases();
  await using server = await startWorkServer(await postgres.create('ours'));
  await using load = startLoad();
  const place = await makePlace(server.url);
  const database = await postgres.open('ours');
  const active = await insertLeases(database, place.environmentId, rowsSome);
  await settle(database);
  const watched = { server: server.pid, postgres: postgres.pid };
  const options = { ...place, leases: active, connections: CONNECTIONS, intervalMs: INTERVAL_MS };
  const running = await load.begin('heartbeats', options, watched);
  await pause(isQuick ? INTERVAL_MS / 10 : INTERVAL_MS);
  const [before] = [await updatesOf(database), await running.take()];
  await pause(isQuick ? INTERVAL_MS / 10 : INTERVAL_MS * 2);
  const measured = await running.take();
  await running.stop();
  await pause(TOLD_MS);
  const after = await updatesOf(database);
  const { heartbeat, skipped } = measured.calls;
  const perSecond = (heartbeat?.count ?? 0) / measured.seconds;
  const updates = after.updates - before.updates;
  const hot = (after.hot - before.hot) / updates;
  return {
    rows: [
      {
        part: 'leases',
        what: `${rowsSome.toLocaleString('en-US')} leases, each every ${INTERVAL_MS / 1_000} s: heartbeat ms p50 / p99`,
        figure: `${digits(heartbeat?.p50 ?? Number.NaN)} / ${digits(heartbeat?.p99 ?? Number.NaN)}`,
        note: `from when each is due; ${digits(perSecond)} heartbeats/s over ${CONNECTIONS} connections, ${skipped?.count ?? 0} not sent for the one before; ${sharesOf([measured])}`,
      },
      {
        part: 'leases',
        what: 'HOT updates of work_items, %',
        figure: digits(hot * 100),
        note: `of ${updates.toLocaleString('en-US')}`,
      },
    ],
    floors: [],
  };
}

async function updatesOf(database: Database): Promise<{ updates: number; hot: number }> {
  const [row] = await database.rows(sql<{ updates: number; hot: number }>`
    select n_tup_upd::integer as updates, n_tup_hot_upd::integer as hot from pg_stat_user_tables where relname = 'work_items'`);
  if (row === undefined) throw new Error('no figures of work_items');
  return row;
}
