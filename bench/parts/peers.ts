import { makePlace } from '../support/call.ts';
import { cycling, inTurns, placeOf, type Round } from '../support/contenders.ts';
import { startDatabases } from '../support/databases.ts';
import { digits, digitsOf, median } from '../support/figures.ts';
import { startLoad } from '../support/load.ts';
import { installPeers, peer } from '../support/peers.ts';
import type { Counts, Report } from '../support/report.ts';
import { startWorkServer } from '../support/servers.ts';

const CLIENTS = [16, 64];
const OURS = 'leasehold over HTTP';

/**
 * Jobs fetched and completed one at a time by other queues, in turns with our cycles, each in a database of its own on one Postgres. It is
 * generous to them: they have no HTTP, and two calls a job where a cycle has four.
 */
export async function peers(counts: Counts): Promise<Report> {
  installPeers();
  await using postgres = await startDatabases();
  await using server = await startWorkServer(await postgres.create('ours'));
  await using load = startLoad();
  const place = await makePlace(server.url);
  const start = async (name: string) => {
    const database = name.replaceAll('-', '_');
    return peer(name, `${name}.ts`, await postgres.create(database), await postgres.open(database), postgres.pid);
  };
  await using boss = await start('pg-boss');
  await using graphile = await start('graphile-worker');
  const watched = { server: server.pid, postgres: postgres.pid };
  const ours = cycling(OURS, load, place, await postgres.open('ours'), watched);
  const rounds = await inTurns([ours, boss, graphile], CLIENTS, counts);
  const rows = CLIENTS.flatMap((clients) =>
    [ours, boss, graphile].map(({ name }) => {
      const of = rounds.get(placeOf(name, clients)) ?? [];
      const unit = name === OURS ? 'cycles/s' : 'jobs/s';
      const figure = digitsOf(of.map(({ done, seconds }) => done / seconds));
      return { part: 'peers', what: `${placeOf(name, clients)}: ${unit}`, figure, note: costOf(of) };
    }),
  );
  return { rows, floors: [] };
}

function costOf(rounds: readonly Round[]): string {
  const micros = (of: (round: Round) => number) =>
    digits(median(rounds.map((round) => (of(round) / round.done) * 1e6)));
  const client = micros(({ cpu }) => cpu.server + cpu.load);
  return `processor µs of one: Postgres ${micros(({ cpu }) => cpu.postgres)}, all else ${client}`;
}
