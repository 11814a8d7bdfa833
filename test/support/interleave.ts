import { sql } from 'kysely';
import type { Test } from 'tap';
import { createQueue, type Queue } from '../../src/create-queue.ts';
import { type CallerTransaction, type Database, within } from '../../src/db/connect.ts';
import { type Server, testClient, testDatabase, until } from './harness.ts';

export type Held<Answer> = {
  /** What the held statement answered. */
  readonly answer: Answer;
  /** Waits until that many connections wait for a lock of the held transaction, or for one another behind it. */
  untilBlocked(count?: number): Promise<void>;
  commit(): Promise<void>;
  rollback(): Promise<void>;
};

/**
 * Runs a verb in a transaction that stays open, so that it has acted but not committed: whoever comes next meets its row
 * locks. This forces one order of a race; swapping the verbs forces the other.
 */
export async function hold<Answer>(
  t: Test,
  database: Database,
  verb: (database: Database, client: CallerTransaction) => Promise<Answer>,
): Promise<Held<Answer>> {
  const client = await testClient(t);
  const { rows } = await client.query('select pg_backend_pid() as pid');
  const pid: number = rows[0].pid;
  await client.query('begin');
  const answer = await verb(within(database, client), client);
  return {
    answer,
    untilBlocked: (count = 1) =>
      until(`${count} connections blocked behind the held transaction`, async () => {
        return (await blockedBehind(database, pid)).length >= count;
      }),
    commit: async () => void (await client.query('commit')),
    rollback: async () => void (await client.query('rollback')),
  };
}

/** The backends that wait for a backend's locks, directly or in line behind another waiter. */
async function blockedBehind(database: Database, pid: number): Promise<number[]> {
  const rows = await database.rows(sql<{ pid: number }>`
    with recursive blocked(pid) as (
      select a.pid from pg_stat_activity a where ${pid} = any(pg_blocking_pids(a.pid))
      union
      select a.pid from pg_stat_activity a join blocked b on b.pid = any(pg_blocking_pids(a.pid))
    ) select b.pid from blocked b`);
  return rows.map((row) => row.pid);
}

/** Holds the lock of one row. */
export const holdRow = (t: Test, database: Database, id: string): Promise<Held<unknown>> =>
  hold(t, database, ({ rows, names }) => rows(sql`select from ${names.workItems} where id = ${id} for update`));

export type Replica = { readonly database: Database; readonly queue: Queue };

/** Other servers on the same schema, each with connections and memory of its own. */
export async function replicas(t: Test, { schema }: Database, count: number): Promise<Replica[]> {
  const made: Replica[] = [];
  for (let n = 0; n < count; n++) {
    const database = await testDatabase(t, 'postgres', { schema, poolConnectionsMax: 4 });
    const queue = createQueue({ database });
    t.teardown(() => queue.close());
    made.push({ database, queue });
  }
  return made;
}

export type Stage = 'reserved' | 'starting' | 'active' | 'stopping';

/** What the worker of an item knows. */
export type Holding = { readonly id: string; readonly sessionsToken: string; readonly heartbeat: string };

/** Enqueues a session and takes it through the wire up to a stage. The queue must hold nothing else that is free. */
export async function holding(server: Server, sessionId: string, stage: Stage): Promise<Holding> {
  const { call, work, enqueue } = server;
  await enqueue(sessionId);
  const { id, secret } = (await call('GET', work('/poll'))).json;
  const { sessions_token: sessionsToken } = JSON.parse(Buffer.from(secret, 'base64url').toString());
  let heartbeat = 'NO_HEARTBEAT';
  if (stage !== 'reserved') await call('POST', work(`/${id}/ack`));
  if (stage === 'active' || stage === 'stopping') heartbeat = (await beat(server, id)).json.last_heartbeat;
  if (stage === 'stopping') await call('POST', work(`/${id}/stop`));
  return { id, sessionsToken, heartbeat };
}

export const beat = ({ call, work }: Server, id: string, expected = 'NO_HEARTBEAT', headers = {}) =>
  call('POST', work(`/${id}/heartbeat?expected_last_heartbeat=${encodeURIComponent(expected)}`), { headers });
