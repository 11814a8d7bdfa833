import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import type { LockRef } from '../../src/locks/lock.ts';
import type { CallOptions, Server } from './harness.ts';

/** A lock's whole row, as text columns; undefined: there is none. */
export async function lockRow(
  { rows, names }: Database,
  { environmentId, name }: LockRef,
): Promise<Record<string, unknown> | undefined> {
  const [found] = await rows(sql<{ row: string }>`
    select to_jsonb(l)::text as row from ${names.locks} l where l.environment_id = ${environmentId} and l.name = ${name}`);
  return found === undefined ? undefined : JSON.parse(found.row);
}

/** Tests move rows, not clocks (design §3). */
export const expireLock = ({ rows, names }: Database, { environmentId, name }: LockRef, seconds = 1) =>
  rows(sql`update ${names.locks} set expires_at = clock_timestamp() - ${seconds} * interval '1 second'
    where environment_id = ${environmentId} and name = ${name}`);

/** The routes of an environment's locks. */
export function lockRoutes({ call }: Pick<Server, 'call'>, environmentId: string, as?: string) {
  const credential: CallOptions = as === undefined ? {} : { as };
  const at = (name: string, verb = '') =>
    `/control/v1/environments/${environmentId}/locks/${encodeURIComponent(name)}${verb}`;
  return {
    acquire: (name: string, owner: string, ttlSeconds?: number) =>
      call('PUT', at(name), {
        ...credential,
        body: { owner, ...(ttlSeconds === undefined ? {} : { ttl_seconds: ttlSeconds }) },
      }),
    renew: (name: string, token: number, ttlSeconds?: number) =>
      call('POST', at(name, '/renew'), {
        ...credential,
        body: { token, ...(ttlSeconds === undefined ? {} : { ttl_seconds: ttlSeconds }) },
      }),
    release: (name: string, token: number) => call('POST', at(name, '/release'), { ...credential, body: { token } }),
    list: (query = '') => call('GET', `/control/v1/environments/${environmentId}/locks${query}`, credential),
  };
}
