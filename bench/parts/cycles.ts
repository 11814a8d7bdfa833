import { makePlace } from '../support/call.ts';
import { asking, cycling, inTurns, placeOf, type Round, type Rounds } from '../support/contenders.ts';
import { startDatabases } from '../support/databases.ts';
import { digits, digitsOf, median, spread } from '../support/figures.ts';
import { startLoad } from '../support/load.ts';
import type { Counts, Floor, Report, Row } from '../support/report.ts';
import { startServer, startWorkServer } from '../support/servers.ts';

const CLIENTS = [16, 64, 256];
const PLAIN = 'bytes without HTTP (node:net)';
const LIMIT = 'bare Fastify route';
const OURS = 'leasehold';
const CONTROL = 'leasehold, a statement a call';
const CALLS = ['poll', 'ack', 'heartbeat', 'stop'] as const;

/** Full cycles over HTTP against what bounds them and against what they would cost without sharing; all in turns, on one Postgres. */
export async function cycles(counts: Counts): Promise<Report> {
  await using postgres = await startDatabases();
  await using plain = await startServer('bench/plain.ts');
  await using bare = await startServer('bench/bare.ts');
  await using ours = await startWorkServer(await postgres.create('ours'));
  await using control = await startWorkServer(await postgres.create('control'), 'bench/control.ts');
  await using load = startLoad();
  const watch = (server: { pid: number }) => ({ server: server.pid, postgres: postgres.pid });
  const contenders = [
    asking(PLAIN, load, plain.url, '/', { server: plain.pid }),
    asking(LIMIT, load, bare.url, '/work', { server: bare.pid }),
    cycling(OURS, load, await makePlace(ours.url), await postgres.open('ours'), watch(ours)),
    cycling(CONTROL, load, await makePlace(control.url), await postgres.open('control'), watch(control)),
  ];
  const rounds = await inTurns(contenders, CLIENTS, counts);
  const rows = CLIENTS.flatMap((clients) => rowsOf(rounds, clients));
  return { rows, floors: floorsOf(rounds) };
}

const perSecond = (rounds: Rounds, name: string, clients: number, of: 'requests' | 'done' = 'requests') =>
  (rounds.get(placeOf(name, clients)) ?? []).map((round) => round[of] / round.seconds);

/** Of one to another, round by round: they were measured one after the other. */
const ratios = (rounds: Rounds, clients: number, [name, other]: [string, string], of?: 'requests' | 'done') => {
  const others = perSecond(rounds, other, clients, of);
  return perSecond(rounds, name, clients, of).map((value, n) => value / (others[n] ?? Number.NaN));
};

function rowsOf(rounds: Rounds, clients: number): Row[] {
  const row = (name: string, unit: string, figure: string, note: string): Row => ({
    part: 'cycles',
    what: `${placeOf(name, clients)}: ${unit}`,
    figure,
    note,
  });
  const of = (name: string) => rounds.get(placeOf(name, clients)) ?? [];
  const bounds = [PLAIN, LIMIT].map((name) =>
    row(name, 'requests/s', digitsOf(perSecond(rounds, name, clients)), costOf(of(name))),
  );
  const lanes = [OURS, CONTROL].flatMap((name) => {
    const requests = digits(median(perSecond(rounds, name, clients)));
    const ratio = digitsOf(ratios(rounds, clients, [name, LIMIT]));
    return [
      row(
        name,
        'cycles/s',
        digitsOf(perSecond(rounds, name, clients, 'done')),
        `${requests} requests/s, ${ratio} of the bare route; ${costOf(of(name))}`,
      ),
      row(name, 'ms p50 / p99', timesOf(of(name)), emptyOf(of(name))),
    ];
  });
  const gain = digitsOf(ratios(rounds, clients, [OURS, CONTROL], 'done'));
  return [...bounds, ...lanes, row(OURS, 'times the statement a call', gain, '')];
}

/** Processor time by the request. */
function costOf(rounds: readonly Round[]): string {
  const micros = (who: 'server' | 'postgres' | 'load') =>
    digits(median(rounds.map(({ cpu, requests }) => (cpu[who] / requests) * 1e6)));
  const hasPostgres = rounds.some(({ cpu }) => cpu.postgres > 0);
  return `processor µs a request: server ${micros('server')}${hasPostgres ? `, Postgres ${micros('postgres')}` : ''}, load ${micros('load')}`;
}

/** An item that was locked just then is passed over: the poll that meets only such waits. */
function emptyOf(rounds: readonly Round[]): string {
  const empty = median(rounds.map(({ calls }) => calls.empty?.count ?? 0));
  return empty === 0 ? '' : `${digits(empty)} empty polls a round`;
}

function timesOf(rounds: readonly Round[]): string {
  const at = (name: string, q: 'p50' | 'p99') =>
    digits(median(rounds.map(({ calls }) => calls[name]?.[q] ?? Number.NaN)));
  return CALLS.map((name) => `${name} ${at(name, 'p50')} / ${at(name, 'p99')}`).join(', ');
}

function floorsOf(rounds: Rounds): Floor[] {
  const floor = (what: string, least: number, values: readonly number[]): Floor => ({
    what,
    wanted: `>= ${least}`,
    measured: digitsOf(values),
    isReached: spread(values).median >= least,
  });
  return [
    floor('requests/s of full cycles to the bare route, 64 clients', 0.35, ratios(rounds, 64, [OURS, LIMIT])),
    floor('requests/s of full cycles to the bare route, 256 clients', 0.45, ratios(rounds, 256, [OURS, LIMIT])),
    floor('cycles/s to a statement a call, 64 clients', 3, ratios(rounds, 64, [OURS, CONTROL], 'done')),
  ];
}
