import { type RawBuilder, sql } from 'kysely';
import { mintEnvironmentKey } from '../../src/control/key-rows.ts';
import type { Database } from '../../src/db/connect.ts';
import { rfc3339 } from '../../src/db/sql.ts';
import { hashSecret, mintId } from '../../src/queue/ids.ts';
import type { Lease } from '../load/heartbeats.ts';
import type { Place } from './call.ts';

/** Longer than any bench runs. */
const LEASE = sql`interval '1 day'`;
/** As many characters as a minted id has. */
const randomId = sql`'work_' || left(md5(random()::text || n), 24)`;

/** Environments with a key each. */
export async function insertPlaces(database: Database, url: string, count: number): Promise<Place[]> {
  const { environments, credentials } = database.names;
  const places = Array.from({ length: count }, () => ({
    url,
    environmentId: mintId('env'),
    key: mintEnvironmentKey(),
  }));
  const ids = places.map(({ environmentId }) => environmentId);
  const hashes = places.map(({ key }) => hashSecret(key));
  const keyIds = places.map(() => mintId('key'));
  await database.rows(sql`
    with made as (
      insert into ${environments} (id, name, type) select t.id, t.id, 'self_hosted' from unnest(${ids}::text[]) as t(id)
    )
    insert into ${credentials} (id, environment_id, name, key_hash, expires_at)
    select t.key_id, t.id, 'workers', t.hash, clock_timestamp() + interval '1 day'
    from unnest(${ids}::text[], ${keyIds}::text[], ${hashes}::text[]) as t(id, key_id, hash)`);
  return places;
}

/** Queued, each for a session of its own. */
export const insertQueued = (database: Database, environmentId: string, count: number) =>
  insert(database, environmentId, count, 'queued', sql``, sql``);

/** Finished so many days ago, a microsecond after one another; the first is removed first. */
export const insertFinished = (database: Database, environmentId: string, count: number, daysAgo = 0) =>
  insert(
    database,
    environmentId,
    count,
    'stopped',
    sql`, handed_out_at, hand_out_count, worker_id, sessions_token_hash, lease_ttl_seconds, acknowledged_at, started_at, last_heartbeat,
      stop_requested_at, stop_reason, stop_requested_by, stopped_at`,
    sql`, now(), 1, 'worker-' || n % 1000, md5(n::text), 120, now(), now(), now(), now(), 'worker', 'worker',
      now() - ${daysAgo}::integer * interval '1 day' + n * interval '1 microsecond'`,
  );

/** Active, under leases that outlast the bench. */
export async function insertLeases(database: Database, environmentId: string, count: number): Promise<Lease[]> {
  await insert(
    database,
    environmentId,
    count,
    'active',
    sql`, handed_out_at, hand_out_count, worker_id, sessions_token_hash, lease_ttl_seconds, acknowledged_at, started_at, last_heartbeat,
      lease_expires_at`,
    sql`, now(), 1, 'worker-' || n, md5(n::text), 120, now(), now(), now(), now() + ${LEASE}`,
  );
  return database.rows(sql<Lease>`
    select w.id, ${rfc3339(sql`w.last_heartbeat`)} as token from ${database.names.workItems} w
    where w.environment_id = ${environmentId} and w.state = 'active' order by random()`);
}

async function insert(
  database: Database,
  environmentId: string,
  count: number,
  state: string,
  columns: RawBuilder<unknown>,
  values: RawBuilder<unknown>,
): Promise<void> {
  await database.rows(sql`
    insert into ${database.names.workItems} (id, environment_id, session_id, kind, lane, state${columns})
    select ${randomId}, ${environmentId}, ${mintId('sesn')} || '-' || n, 'tool_exec', 'wire', ${state}${values}
    from generate_series(1, ${count}::integer) n`);
}

/** What autovacuum does after so many rows. */
export async function settle(database: Database): Promise<void> {
  await database.rows(sql`vacuum analyze`);
}
