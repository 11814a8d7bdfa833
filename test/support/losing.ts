import { sql } from 'kysely';
import type { Server } from './harness.ts';
import { type RelayPlace, TOOL } from './sessions.ts';

/** A worker takes what there is, whatever it waits for, and stops without a result. */
export async function lose({ database }: Server, place: RelayPlace): Promise<void> {
  const { workItems } = database.names;
  await database.rows(
    sql`update ${workItems} set not_before = null where environment_id = ${place.environmentId} and state = 'queued'`,
  );
  await place.stop((await place.work()).id);
}

/** A session with two open calls, armed that often in vain. */
export async function losing(server: Server, place: RelayPlace, armCount: number, ...calls: object[]) {
  const id = await place.session();
  const open = await place.append(id, ...(calls.length > 0 ? calls : [TOOL, TOOL]));
  const { sessions } = server.database.names;
  await server.database.rows(sql`update ${sessions} set arm_count = ${armCount} where id = ${id}`);
  return { id, calls: open.map((event) => event.id as string) };
}
