import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { environmentNotFound } from '../queue/errors.ts';
import { hashSecret, mintSecret } from '../queue/ids.ts';
import { checkText, LIMITS } from '../queue/limits.ts';

export const TICKET_SECONDS = 60;

const TICKET = /^lht_[A-Za-z0-9_-]{43}$/;

export type StreamTicket = {
  /** Shown this once; only its hash is kept. */
  readonly ticket: string;
  readonly expiresAt: string;
};

/** A ticket for the events of one environment, in the stead of the key with this hash, for a minute. Refuses: environment_not_found. */
export async function issueTicket(database: Database, environmentId: string, keyHash: string): Promise<StreamTicket> {
  checkText('environmentId', environmentId, LIMITS.idCharacters);
  const { streamTickets, environments } = database.names;
  const ticket = `lht_${mintSecret()}`;
  const [row] = await database.rows(sql<{ expiresAt: string }>`
    insert into ${streamTickets} as s (ticket_hash, environment_id, key_hash, expires_at)
    select ${hashSecret(ticket)}, e.id, ${keyHash}, clock_timestamp() + ${sql.lit(TICKET_SECONDS)} * interval '1 second'
    from ${environments} e where e.id = ${environmentId}
    returning ${rfc3339(sql`s.expires_at`)} as "expiresAt"`);
  if (row === undefined) throw environmentNotFound(environmentId);
  return { ticket, expiresAt: row.expiresAt };
}

/** The hash of the key that a ticket stands for: whether that is still good is another question. Undefined for whatever opens nothing in this environment. */
export async function redeemTicket(
  database: Database,
  ticket: string,
  environmentId: string,
): Promise<string | undefined> {
  if (!TICKET.test(ticket)) return undefined;
  const { streamTickets } = database.names;
  const [row] = await database.rows(sql<{ keyHash: string }>`
    select s.key_hash as "keyHash" from ${streamTickets} s
    where s.ticket_hash = ${hashSecret(ticket)} and s.environment_id = ${environmentId} and s.expires_at > clock_timestamp()`);
  return row?.keyHash;
}
