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
  readonly is_last_hand_out: boolean;
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
  readonly not_before: string | null;
  readonly attempt: number;
  readonly max_attempts: number | null;
  readonly last_error: string | null;
  readonly outcome: 'succeeded' | 'failed' | null;
  /** Of the table beside it, as JSON text. */
  readonly result: string | null;
  readonly follow_up: { readonly id: string } | null;
};

/** A row of `locks`, likewise. */
export type LockRow = {
  readonly name: string;
  readonly owner: string;
  readonly token: number;
  readonly acquired_at: string;
  readonly expires_at: string;
};

/** What a row was, from one commit to the next. */
export type Version<Of = Row> = {
  readonly n: number;
  /** Which replica made it, or the test. */
  readonly by: string;
  readonly transaction: string;
  /** By the database's clock, in microseconds: when its transaction began, and right before that was committed. */
  readonly since: number;
  readonly at: number;
  readonly old: Of | null;
  readonly row: Of;
  /** Between these ticks of the test it was committed, as far as is known. */
  committedAfter: number;
  committedBefore: number;
};

type Stamps = { n: string; by: string; transaction: string; since: string; at: string };
type Logged = Stamps &
  ({ of: 'work_items'; old: Row | null; row: Row } | { of: 'locks'; old: LockRow | null; row: LockRow });

/** The versions of all items and locks of a history, each in the order of its commits. */
export class Log {
  readonly items = new Map<number, Version[]>();
  readonly locks = new Map<string, Version<LockRow>[]>();
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
    const stamps = `current_setting('application_name'), pg_current_xact_id()::text,
      (extract(epoch from now()) * 1000000)::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint`;
    const logging = (table: string, row: string) => `
      create function ${schema}.log_${table}() returns trigger language plpgsql set timezone = 'UTC' as $$ begin
        insert into ${schema}.versions (of, by, transaction, since, at, old, "row")
        values ('${table}', ${stamps}, case tg_op when 'UPDATE' then to_jsonb(old) end, ${row});
        return null;
      end $$;
      create constraint trigger log_version after insert or update on ${schema}.${table} deferrable initially deferred
        for each row execute function ${schema}.log_${table}();`;
    const result = `(select r.result from ${schema}.work_results r where r.item_seq = new.seq)`;
    await this.client.query(`
      create unlogged table ${schema}.versions (
        n bigserial primary key, of text not null, by text not null, transaction text not null, since bigint not null, at bigint not null,
        old jsonb, "row" jsonb not null);
      ${logging('work_items', `to_jsonb(new) || jsonb_build_object('result', ${result})`)}
      ${logging('locks', 'to_jsonb(new)')}`);
  }

  /** Reads what was committed since. What a call begins after this it finds there; what it had not found before was committed later. */
  async read(clock: Clock): Promise<void> {
    const committedAfter = this.readSince;
    this.readSince = clock.tick();
    const { rows } = await this.client.query<Logged>(`delete from ${this.schema}.versions returning *`);
    const committedBefore = clock.tick();
    for (const { n, since, at, ...logged } of rows.sort((one, other) => Number(one.n) - Number(other.n))) {
      const stamps = { n: Number(n), since: Number(since), at: Number(at), committedAfter, committedBefore };
      if (logged.of === 'locks') {
        add(this.locks, logged.row.name, { ...logged, ...stamps });
        continue;
      }
      // The table beside it is read for what a row has become.
      const result = this.items.get(logged.row.seq)?.at(-1)?.row.result ?? null;
      add(this.items, logged.row.seq, { ...logged, ...stamps, old: logged.old && { ...logged.old, result } });
    }
  }

  /** Every version of an item, in the order in which they were logged. */
  all = (): Version[] => [...this.items.values()].flat().sort((one, other) => one.n - other.n);

  /** Empties the tables, for the next history. */
  async reset(clock: Clock): Promise<void> {
    const { schema } = this;
    this.items.clear();
    this.locks.clear();
    await this.client.query(`
      delete from ${schema}.work_items; delete from ${schema}.worker_sightings; delete from ${schema}.audit_log;
      delete from ${schema}.locks; delete from ${schema}.versions;`);
    await clock.set(this.client);
    this.readSince = clock.tick();
  }
}

function add<Key, Value>(lists: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = lists.get(key) ?? [];
  list.push(value);
  lists.set(key, list);
}

/** An instant as microseconds: the wire's text, or jsonb's, which leaves zeros out. */
export function micros(instant: string): number {
  const [, seconds, fraction = ''] = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00:00)$/.exec(instant) ?? [];
  if (seconds === undefined) throw new Error(`not an instant: ${instant}`);
  return Date.parse(`${seconds}Z`) * 1_000 + Number(fraction.padEnd(6, '0'));
}

export const sameInstant = (one: string | null | undefined, other: string | null | undefined): boolean =>
  one === other || (!!one && !!other && micros(one) === micros(other));
