import type pg from 'pg';
import type { WorkState } from '../../../src/queue/items.ts';
import type { Clock } from './clock.ts';

/** A row of `work_items` as `to_jsonb` shows it: instants are text. */
export type Row = {
  readonly seq: number;
  readonly id: string;
  readonly environment_id: string;
  readonly session_id: string;
  readonly kind: string;
  readonly state: WorkState;
  readonly metadata: Readonly<Record<string, string>>;
  readonly created_at: string;
  readonly hand_out_count: number;
  readonly max_hand_outs: number | null;
  readonly handed_out_at: string | null;
  readonly worker_id: string | null;
  readonly sessions_token_hash: string | null;
  readonly lapsed_state: WorkState | null;
  readonly lease_expires_at: string | null;
  readonly lease_ttl_seconds: number | null;
  readonly acknowledged_at: string | null;
  readonly started_at: string | null;
  readonly last_heartbeat: string | null;
  readonly replaced_heartbeat: string | null;
  readonly stop_requested_at: string | null;
  readonly stopped_at: string | null;
  readonly stop_reason: string | null;
  readonly stop_requested_by: string | null;
  readonly follow_up: { readonly id: string } | null;
};

/** What a row was, from one commit to the next. */
export type Version = {
  readonly n: number;
  /** Which replica made it, or the test. */
  readonly by: string;
  readonly transaction: string;
  /** By the database's clock, in microseconds: when its transaction began, and right before that was committed. */
  readonly since: number;
  readonly at: number;
  readonly old: Row | null;
  readonly row: Row;
  /** Between these ticks of the test it was committed, as far as is known. */
  committedAfter: number;
  committedBefore: number;
};

type Logged = { n: string; by: string; transaction: string; since: string; at: string; old: Row | null; row: Row };

/** The versions of all items of a history, each in the order of its commits. */
export class Log {
  readonly items = new Map<number, Version[]>();
  private readonly client: pg.Client;
  private readonly schema: string;
  private readSince = 0;

  constructor(client: pg.Client, schema: string) {
    this.client = client;
    this.schema = schema;
  }

  /**
   * A trigger logs each version at the end of its transaction: the row is still locked then, so the numbers of one row are in the
   * order of its commits, and what is rolled back leaves nothing.
   */
  async install(): Promise<void> {
    const { schema } = this;
    await this.client.query(`
      create unlogged table ${schema}.versions (
        n bigserial primary key, by text not null, transaction text not null, since bigint not null, at bigint not null, old jsonb, "row" jsonb not null);
      create function ${schema}.log_version() returns trigger language plpgsql set timezone = 'UTC' as $$ begin
        insert into ${schema}.versions (by, transaction, since, at, old, "row")
        values (current_setting('application_name'), pg_current_xact_id()::text,
          (extract(epoch from now()) * 1000000)::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint, case tg_op when 'UPDATE' then to_jsonb(old) end, to_jsonb(new));
        return null;
      end $$;
      create constraint trigger log_version after insert or update on ${schema}.work_items deferrable initially deferred
        for each row execute function ${schema}.log_version();`);
  }

  /** Reads what was committed since. What a call begins after this it finds there; what it had not found before was committed later. */
  async read(clock: Clock): Promise<void> {
    const committedAfter = this.readSince;
    this.readSince = clock.tick();
    const { rows } = await this.client.query<Logged>(`delete from ${this.schema}.versions returning *`);
    const committedBefore = clock.tick();
    const versions = rows.map(({ n, since, at, ...rest }): Version => {
      return { ...rest, n: Number(n), since: Number(since), at: Number(at), committedAfter, committedBefore };
    });
    for (const version of versions.sort((one, other) => one.n - other.n)) {
      const item = this.items.get(version.row.seq) ?? [];
      item.push(version);
      this.items.set(version.row.seq, item);
    }
  }

  /** Every version, in the order in which they were logged. */
  all = (): Version[] => [...this.items.values()].flat().sort((one, other) => one.n - other.n);

  /** Empties the tables, for the next history. */
  async reset(clock: Clock): Promise<void> {
    const { schema } = this;
    this.items.clear();
    await this.client.query(`
      delete from ${schema}.work_items; delete from ${schema}.worker_sightings; delete from ${schema}.audit_log;
      delete from ${schema}.versions;`);
    await clock.set(this.client);
    this.readSince = clock.tick();
  }
}

/** An instant as microseconds: the wire's text, or jsonb's, which leaves zeros out. */
export function micros(instant: string): number {
  const [, seconds, fraction = ''] = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00:00)$/.exec(instant) ?? [];
  if (seconds === undefined) throw new Error(`not an instant: ${instant}`);
  return Date.parse(`${seconds}Z`) * 1_000 + Number(fraction.padEnd(6, '0'));
}

export const sameInstant = (one: string | null | undefined, other: string | null | undefined): boolean =>
  one === other || (!!one && !!other && micros(one) === micros(other));
