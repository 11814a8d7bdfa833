import { sql } from 'kysely';
import { createEnvironment } from '../../src/control/environments.ts';
import { mintEnvironmentKey } from '../../src/control/key-rows.ts';
import type { Database } from '../../src/db/connect.ts';
import { hashSecret, mintId } from '../../src/queue/ids.ts';
import { LIMITS } from '../../src/queue/limits.ts';

export type ManyKey = { readonly id: string; readonly key: string; readonly environmentId: string };

/** As many keys as asked for, in as many environments as that takes, with one statement an environment. */
export async function manyKeys(database: Database, count: number): Promise<ManyKey[]> {
  const keys: ManyKey[] = [];
  while (keys.length < count) {
    const { id: environmentId } = await createEnvironment(database, { name: `${keys.length}`, type: 'self_hosted' });
    const length = Math.min(count - keys.length, LIMITS.keysPerEnvironment / 2);
    const made = Array.from({ length }, () => ({ id: mintId('key'), key: mintEnvironmentKey(), environmentId }));
    await database.rows(sql`
      insert into ${database.names.credentials} (id, environment_id, name, key_hash, expires_at)
      select t.id, ${environmentId}, 'one of many', t.key_hash, clock_timestamp() + interval '1 day'
      from unnest(${made.map(({ id }) => id)}::text[], ${made.map(({ key }) => hashSecret(key))}::text[]) as t(id, key_hash)`);
    keys.push(...made);
  }
  return keys;
}

/** Runs one after another in so many lines at once. */
export async function inLines<Item>(items: Iterable<Item>, lines: number, run: (item: Item) => Promise<unknown>) {
  const iterator = items[Symbol.iterator]();
  const line = async () => {
    for (let next = iterator.next(); !next.done; next = iterator.next()) await run(next.value);
  };
  await Promise.all(Array.from({ length: lines }, line));
}

/** A route that an environment key reaches and is not let in to: 403 while the key is good, 401 after, without the queue. */
export const whoPath = ({ environmentId }: { environmentId: string }): string => `/v1/environments/${environmentId}`;
