import { type RawBuilder, sql } from 'kysely';
import type { TableNames } from '../db/sql.ts';

/** The first retry comes after this; each next one after twice the time. */
const BACKOFF_SECONDS = 1;
const BACKOFF_SECONDS_MAX = 86_400;
/** 2^17 s are more than a day; no power beyond that is asked for. */
const DOUBLINGS_MAX = 17;

/** How long the item `w`, whose attempt failed, is not tried again: half to all of 1 s, 2 s, 4 s … one day. */
export const backoff = sql`least(${sql.lit(BACKOFF_SECONDS_MAX)}, ${sql.lit(BACKOFF_SECONDS)} * power(2, least(w.attempt - 1, ${sql.lit(DOUBLINGS_MAX)})))
    * (0.5 + random() / 2) * interval '1 second'`;

/** Whether the item `w` is set aside when this attempt fails, by its own cap, its environment's or the process's. */
export const isLastAttempt = ({ environments }: TableNames, maxAttempts: number): RawBuilder<boolean> =>
  sql`w.attempt >= coalesce(w.max_attempts, (select e.max_attempts from ${environments} e where e.id = w.environment_id), ${maxAttempts}::integer)`;
