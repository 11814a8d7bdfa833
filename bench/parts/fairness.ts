import { call, makePlace } from '../support/call.ts';
import { startDatabases } from '../support/databases.ts';
import { needSockets } from '../support/descriptors.ts';
import { digits, digitsOf, median } from '../support/figures.ts';
import { type Load, type Measured, type Running, runFor, startLoad, type Watched } from '../support/load.ts';
import type { Counts, Report } from '../support/report.ts';
import { insertQueued, settle } from '../support/rows.ts';
import { OPERATOR_KEY, startWorkServer } from '../support/servers.ts';
import { callsPerSecond, sharesOf, timesOf } from '../support/shares.ts';
import { pause } from '../support/waiting.ts';

const OWN_WAITERS = 8;
const OWN_PAUSE_MS = 10;
const DRAINING_CLIENTS = 64;
const CADENCE_MS = [1_000, 3_000] as const;
const WARMING_UP_MS = 4_000;
const ROUNDS_MAX = 3;
const SECONDS_TIMES = 3;

type Case = {
  readonly name: string;
  /** What the others' pace is counted by. */
  readonly unit: readonly [call: string, name: string];
  begin(load: Load, watched: Watched): Promise<Running | undefined>;
};

/** What one environment's waiting polls get, while another environment of the same server is busy or crowded; in turns with being alone. */
export async function fairness({ rounds, seconds, callersMany, rowsMany, isQuick }: Counts): Promise<Report> {
  const [waiters, depth] = [callersMany * 2, rowsMany / 10];
  needSockets(waiters + OWN_WAITERS);
  await using postgres = await startDatabases();
  await using server = await startWorkServer(await postgres.create('ours'));
  await using crowd = startLoad();
  await using load = startLoad();
  const [own, other] = [await makePlace(server.url, 'own'), await makePlace(server.url, 'other')];
  const drained = await makePlace(server.url, 'drained');
  const database = await postgres.open('ours');
  const crowded = (workers: number, sleepMs: readonly [number, number]) => (of: Load, watched: Watched) =>
    of.begin('polls', { url: server.url, places: [other], workers, sleepMs }, watched);
  const deep = depth.toLocaleString('en-US');
  const many = waiters.toLocaleString('en-US');
  const cases: Case[] = [
    { name: 'alone', unit: ['', ''], begin: async () => undefined },
    {
      name: `${many} workers at their cadence on another environment`,
      unit: ['empty', 'polls/s'],
      begin: crowded(waiters, CADENCE_MS),
    },
    {
      name: `${many} polls always waiting on another environment`,
      unit: ['empty', 'polls/s'],
      begin: crowded(waiters, [0, 0]),
    },
    {
      name: `${deep} queued on another environment, drained by ${DRAINING_CLIENTS}`,
      unit: ['stop', 'cycles/s'],
      async begin(of, watched) {
        const { depth: left } = await call(server.url, 'GET', `/v1/environments/${drained.environmentId}/work/stats`);
        await insertQueued(database, drained.environmentId, depth - left);
        await settle(database);
        return of.begin('cycles', { ...drained, clients: DRAINING_CLIENTS }, watched);
      },
    },
  ];
  const results = cases.map(() => [] as Measured[]);
  const crowds = cases.map(() => [] as Measured[]);
  const watched = { server: server.pid, postgres: postgres.pid };
  const enqueueing = { url: server.url, key: OPERATOR_KEY };
  for (let round = -1; round < Math.min(rounds, ROUNDS_MAX); round++) {
    for (const [index, { begin }] of cases.entries()) {
      const around = await begin(crowd, watched);
      if (around !== undefined && !isQuick) await pause(WARMING_UP_MS);
      await around?.take();
      const running = await load.begin(
        'handOuts',
        { ...own, enqueueing, waiters: OWN_WAITERS, pauseMs: OWN_PAUSE_MS },
        watched,
      );
      const measured = await runFor(seconds * 1_000 * SECONDS_TIMES, running);
      const crowded = await around?.stop();
      if (round < 0) continue;
      results[index]?.push(measured);
      if (crowded !== undefined) crowds[index]?.push(crowded);
    }
  }
  const p99 = (index: number) => timesOf(results[index] ?? [], 'handOut', 'p99');
  const alone = p99(0);
  return {
    rows: cases.map(({ name, unit: [call, unit] }, index) => {
      const around = crowds[index] ?? [];
      const ratios = p99(index).map((value, round) => value / (alone[round] ?? Number.NaN));
      const p50 = digits(median(timesOf(results[index] ?? [], 'handOut', 'p50')));
      return {
        part: 'fairness',
        what: `hand-out, ${name}: ms p99`,
        figure: digitsOf(p99(index)),
        note:
          index === 0
            ? `p50 ${p50}`
            : `p50 ${p50}; ${digitsOf(ratios)} times alone; there ${digits(callsPerSecond(around, call))} ${unit}; ${sharesOf(around)}`,
      };
    }),
    floors: [],
  };
}
