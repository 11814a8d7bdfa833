import { appendFileSync } from 'node:fs';
import pg from 'pg';

/**
 * Loaded into each test process of a mutation run: notes statements that Postgres could not even plan. A mutant that makes
 * one is no proof that a test guards anything.
 */
const UNPLANNABLE = new Set(['42601', '42703', '42804', '42809', '42883', '42P10', '42P18']);
const noteIn = process.env.MUTATION_UNPLANNABLE;

const { query } = pg.Client.prototype;
pg.Client.prototype.query = function (this: pg.Client, ...call: unknown[]) {
  const result: unknown = Reflect.apply(query, this, call);
  if (result instanceof Promise && noteIn !== undefined) {
    result.catch((error: unknown) => {
      if (!(error instanceof pg.DatabaseError) || !UNPLANNABLE.has(error.code ?? '')) return;
      appendFileSync(noteIn, `${error.code} ${error.message}\n`);
    });
  }
  return result;
} as typeof query;
