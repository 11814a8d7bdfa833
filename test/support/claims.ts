import { type RawBuilder, sql } from 'kysely';
import type { Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { type Database, within } from '../../src/db/connect.ts';
import type { Claimed } from '../../src/process/claim.ts';
import type { EnqueueRequest } from '../../src/queue/enqueue.ts';
import type { WorkKind } from '../../src/queue/items.ts';
import type { QueueSettings } from '../../src/queue/settings.ts';
import { type Engine, rowOf, testClient, testDatabase, until } from './harness.ts';

export type LaneOptions = { readonly engine?: Engine; readonly settings?: Partial<QueueSettings> };

/** A queue with a cloud and a self_hosted environment. A claim may take what any test left: `empty` begins each. */
export async function newLane(t: Test, { engine = 'postgres', settings = {} }: LaneOptions = {}) {
  const database = await testDatabase(t, engine);
  const queue = createQueue({ database, settings, workerId: 'one' });
  t.teardown(() => queue.close());
  const { id: cloud } = await createEnvironment(database, { name: 'cloud', type: 'cloud' });
  const { id: selfHosted } = await createEnvironment(database, { name: 'self-hosted', type: 'self_hosted' });
  const { workItems, environments } = database.names;
  let sessions = 0;

  const request = (fields: Partial<EnqueueRequest>): EnqueueRequest => ({
    ...{ environmentId: cloud, sessionId: `session ${sessions++}`, kind: 'model_turn', ...fields },
  });
  const enqueue = async (fields: Partial<EnqueueRequest> = {}) => (await queue.enqueue(request(fields))).item.id;
  const claim = (kind: WorkKind = 'model_turn', workerId = 'one', ttlSeconds = 60) =>
    queue.claim(kind, { ttlSeconds, workerId });
  const mustClaim = async (...args: Parameters<typeof claim>): Promise<Claimed> => {
    const claimed = await claim(...args);
    if (claimed === null) throw new Error('set-up failed: there was nothing to claim');
    return claimed;
  };
  return {
    ...{ database, queue, cloud, selfHosted, enqueue, claim, mustClaim },
    row: (id: string) => rowOf(database, id),
    /** An item of its own that is held, whatever else could be claimed. */
    async held(fields: Partial<EnqueueRequest> = {}): Promise<Claimed> {
      const { item } = await queue.enqueue(request(fields));
      const claimed = await queue.claim({ ...item, handOut: 0 }, { ttlSeconds: 60 });
      if (claimed === null) throw new Error('set-up failed: the item was not claimed');
      return claimed;
    },
    async set(id: string, columns: RawBuilder<unknown>): Promise<void> {
      await database.rows(sql`update ${workItems} set ${columns} where id = ${id}`);
    },
    async empty(): Promise<void> {
      await database.rows(sql`truncate ${workItems} cascade`);
      await database.rows(sql`update ${environments}
        set fallback_after_ms = null, paused_at = null, max_hand_outs = null, max_attempts = null, archived_at = null`);
    },
    /** Every row, in order. */
    async all(): Promise<Record<string, unknown>[]> {
      const rows = await database.rows(
        sql<{ row: string }>`select to_jsonb(w)::text as row from ${workItems} w order by w.seq`,
      );
      return rows.map(({ row }) => JSON.parse(row));
    },
  };
}

export type Lane = Awaited<ReturnType<typeof newLane>>;

/** In the past. */
export const AGO = sql`clock_timestamp() - interval '1 minute'`;
export const LAPSED = sql`lease_expires_at = ${AGO}`;

export type Stopped<Answer> = {
  /** Lets it go on; its answer, committed. */
  go(): Promise<Answer>;
};

/**
 * Begins a verb and stops it inside its statement, where that first reads the clock: what it has read is of before, what it locks is of
 * after. So a row can be changed, and the change committed, in between.
 */
export async function stopInside<Answer>(
  t: Test,
  database: Database,
  verb: (database: Database) => Promise<Answer>,
  clock: 'clock_timestamp' | 'statement_timestamp' = 'clock_timestamp',
): Promise<Stopped<Answer>> {
  const [gate, client] = [await testClient(t), await testClient(t)];
  const { rows } = await gate.query('select hashtext($1)::int as key, pg_backend_pid() as pid', [
    `${database.schema} ${clock}`,
  ]);
  const { key, pid } = rows[0];
  await gate.query(`create or replace function "${database.schema}".${clock}() returns timestamptz language plpgsql as
    $$ begin perform pg_catalog.pg_advisory_xact_lock_shared(${key}); return pg_catalog.${clock}(); end $$`);
  await gate.query('select pg_advisory_lock($1)', [key]);
  await client.query('begin');
  await client.query(`set local search_path = "${database.schema}", pg_catalog`);
  const answer = verb(within(database, client));
  answer.catch(() => {});
  await until('the statement is stopped', async () => {
    const found = await gate.query('select 1 from pg_stat_activity where $1 = any(pg_blocking_pids(pid))', [pid]);
    return found.rows.length > 0;
  });
  return {
    async go() {
      await gate.query('select pg_advisory_unlock($1)', [key]);
      const found = await answer;
      await client.query('commit');
      return found;
    },
  };
}
