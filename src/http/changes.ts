import type { FastifyRequest } from 'fastify';
import { type Database, within } from '../db/connect.ts';
import type { QueueError } from '../queue/errors.ts';

export type ChangeAnswer<Body> = {
  readonly status: number;
  readonly body: Body;
  /** What was changed, where the path does not name it: the id of what was made. */
  readonly target?: string;
  /** What a repeat is told in place of an answer that holds a secret. */
  readonly repeat?: QueueError;
};

/**
 * Runs a change that an API key asked for, its statements in one transaction: with its entry in the audit log and, given an
 * Idempotency-Key, with the answer that a repeat gets.
 */
export async function change<Body>(
  database: Database,
  _request: FastifyRequest,
  act: (database: Database) => Promise<ChangeAnswer<Body>>,
): Promise<ChangeAnswer<Body>> {
  return database.transaction((transaction) => act(within(database, transaction)));
}
