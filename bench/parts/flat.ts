import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import { makePlace, type Place } from '../support/call.ts';
import { startDatabases } from '../support/databases.ts';
import { digits, digitsOf, median } from '../support/figures.ts';
import { type Measured, startLoad } from '../support/load.ts';
import type { Counts, Report } from '../support/report.ts';
import { insertFinished, insertLeases, insertQueued, settle } from '../support/rows.ts';
import { OPERATOR_KEY, type Server, startWorkServer } from '../support/servers.ts';
import { timesOf } from '../support/shares.ts';

const CALLS = ['poll', 'ack', 'heartbeat', 'stop'] as const;
const QUEUED = 100;
/** Of a turn; many short turns, so that what else the machine does meets all cells alike. */
const CYCLES = 50;
const TURNS_A_ROUND = 4;
const TURNS_OF_WARMING_UP = 4;
/** Between cycles: one client alone must not be more than one caller may ask. */
const PAUSE_MS = 2;
const RATIO_MAX = 1.5;

type Cell = { readonly name: string; readonly place: Place; readonly results: Measured[] };

/**
 * One client's calls, whatever else the table holds. Each cell is a database and a server of its own, on one Postgres, and they are visited in turns; a
 * cycle's item is replaced before the next, so that the depth stays.
 */
export async function flat({ rounds, rowsMany, rowsSome }: Counts): Promise<Report> {
  await using postgres = await startDatabases();
  await using servers = new AsyncDisposableStack();
  await using load = startLoad();
  const cells: Cell[] = [];
  const add = async (name: string, fill: (database: Database, environmentId: string) => Promise<unknown>) => {
    const databaseName = `cell_${cells.length}`;
    const server: Server = servers.use(await startWorkServer(await postgres.create(databaseName)));
    const place = await makePlace(server.url);
    const database = await postgres.open(databaseName);
    await fill(database, place.environmentId);
    await settle(database);
    cells.push({ name, place, results: [] });
  };
  const queued = QUEUED.toLocaleString('en-US');
  const many = rowsMany.toLocaleString('en-US');
  const some = rowsSome.toLocaleString('en-US');
  await add(`${queued} queued`, (database, id) => insertQueued(database, id, QUEUED));
  await add(`${many} queued`, (database, id) => insertQueued(database, id, rowsMany));
  await add(`${queued} queued, ${many} finished`, async (database, id) => {
    await insertFinished(database, id, rowsMany);
    await insertQueued(database, id, QUEUED);
  });
  await add(`${queued} queued, ${some} active`, async (database, id) => {
    await insertLeases(database, id, rowsSome);
    await insertQueued(database, id, QUEUED);
  });
  const first = await postgres.open('postgres');
  await first.rows(sql`checkpoint`);

  for (let turn = -TURNS_OF_WARMING_UP; turn < rounds * TURNS_A_ROUND; turn++) {
    for (const { place, results } of cells) {
      const options = { ...place, clients: 1, items: CYCLES, refillKey: OPERATOR_KEY, pauseMs: PAUSE_MS };
      const measured = await (await load.begin('cycles', options)).finish();
      if (turn >= 0) results.push(measured);
    }
  }
  const p50 = (cell: Cell, name: string) => median(timesOf(cell.results, name, 'p50'));
  const ratios = CALLS.map((name) => {
    const times = cells.map((cell) => p50(cell, name));
    return { name, ratio: Math.max(...times) / Math.min(...times) };
  });
  const rows = cells.flatMap((cell) => ({
    part: 'flat',
    what: `${cell.name}: ms p50`,
    figure: CALLS.map((name) => `${name} ${digitsOf(timesOf(cell.results, name, 'p50'))}`).join(', '),
    note: `p99 ${CALLS.map((name) => `${name} ${digits(median(timesOf(cell.results, name, 'p99')))}`).join(', ')}`,
  }));
  return {
    rows,
    floors: ratios.map(({ name, ratio }) => ({
      what: `p50 of ${name === 'poll' ? 'claim (poll)' : name}, slowest cell to fastest`,
      wanted: `<= ${RATIO_MAX}`,
      measured: digits(ratio),
      isReached: ratio <= RATIO_MAX,
    })),
  };
}
