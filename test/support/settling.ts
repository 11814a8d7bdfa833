import { join } from 'node:path';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { createEnvironment, createQueue, migrate, openDatabase } from '../../src/index.ts';
import { freshDatabase } from './process.ts';

/** A module of handlers that write one row each in their settlement's transaction. */
export const SETTLING = join(import.meta.dirname, 'settling-handlers.ts');

/** An empty database for runner processes, with the table that those handlers write; opened here, too, with a queue and a cloud environment. */
export async function settlingPlace(t: Test) {
  const url = await freshDatabase(t);
  const database = await openDatabase({ connectionString: url, poolConnectionsMax: 4 });
  const queue = createQueue({ database });
  t.teardown(async () => {
    await queue.close();
    await database.close();
  });
  await migrate(database);
  // No key: a second row is to be seen, not refused.
  await database.rows(sql`create table public.settled (session_id text not null, worker_id text not null)`);
  const { id: environmentId } = await createEnvironment(database, { name: 'cloud', type: 'cloud' });
  return { url, database, queue, environmentId };
}
