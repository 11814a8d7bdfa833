import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type pg from 'pg';
import type { Queue } from '../../src/create-queue.ts';
import type { Database } from '../../src/db/connect.ts';
import { rfc3339 } from '../../src/db/sql.ts';
import { type HandOut, poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { type Item, isClaimable, isLive } from './model.ts';

export type ModelItem = Item<HandOut> & {
  /** `A/s1` or, of the second item of that session, `A/s1'`. */
  readonly name: string;
  readonly slot: string;
  readonly handOuts: HandOut[];
  /** Every token it ever had, oldest first. */
  readonly tokens: string[];
};

type Row = {
  seq: string;
  id: string;
  state: string;
  metadata: string;
  lastHeartbeat: string | null;
  replaced: string | null;
  ttlSeconds: number | null;
  leaseSeconds: number | null;
  whole: string;
};

/** A lease set `n` seconds ahead may have this much less left when it is looked at; histories are far shorter. */
const SECONDS_PASSED_MAX = 20;

/** The library over one database, and the model of what is in it. */
export class World {
  readonly items: ModelItem[] = [];
  /** How often each cell of the state table was met, so that a run can show that it is not idle. */
  readonly cells = new Map<string, number>();
  private rows = new Map<string, string>();
  readonly database: Database;
  readonly queue: Queue;
  /** By the letter that histories call them. */
  readonly environments: Readonly<Record<'A' | 'B', string>>;
  private readonly client: pg.Client;

  constructor(database: Database, queue: Queue, environments: Record<'A' | 'B', string>, client: pg.Client) {
    this.database = database;
    this.queue = queue;
    this.environments = environments;
    this.client = client;
  }

  /** The table against the model: what each row must be, and that nothing but `changed` has changed. */
  async check(changed: ReadonlySet<ModelItem>): Promise<void> {
    const { workItems, handOuts } = this.database.names;
    const rows = await this.database.rows(sql<Row>`
      select w.seq::text, w.id, w.state, w.metadata::text, ${rfc3339(sql`w.last_heartbeat`)} as "lastHeartbeat",
        ${rfc3339(sql`w.replaced_heartbeat`)} as replaced, w.lease_ttl_seconds as "ttlSeconds",
        extract(epoch from w.lease_expires_at - clock_timestamp())::float8 as "leaseSeconds", to_jsonb(w)::text as whole
      from ${workItems} w order by w.seq`);
    const superseded = await this.database.rows(
      sql<{ id: string; seq: string }>`select h.work_id as id, h.item_seq::text as seq from ${handOuts} h`,
    );
    const bySeq = new Map(rows.map((row) => [row.seq, row]));
    assert.equal(rows.length, this.items.length, 'each item is one row, and there is no other');
    for (const item of this.items) {
      const row = bySeq.get(item.seq);
      assert(row, `${item.name} is in the table`);
      this.checkRow(item, row);
      if (!changed.has(item)) {
        assert.equal(row.whole, this.rows.get(item.seq), `the row of ${item.name} stays as it was`);
      }
    }
    assert.deepEqual(
      superseded.map(({ id, seq }) => `${seq} ${id}`).sort(),
      this.items.flatMap((item) => item.oldIds.map((id) => `${item.seq} ${id}`)).sort(),
      'hand_outs remembers exactly the superseded ids',
    );
    const slots = this.items.filter(isLive).map((item) => item.slot);
    assert.equal(new Set(slots).size, slots.length, 'unique while live');
    this.rows = new Map(rows.map((row) => [row.seq, row.whole]));
    const places = new Set([...changed].map((item) => item.environmentId));
    for (const environmentId of places) await this.checkReachable(environmentId);
  }

  private checkRow(item: ModelItem, row: Row): void {
    const { id, state, lastHeartbeat, replaced, ttlSeconds, leaseSeconds } = row;
    const metadata: unknown = JSON.parse(row.metadata);
    assert.deepEqual(
      { id, state, lastHeartbeat, replaced: replaced ?? (lastHeartbeat && 'NO_HEARTBEAT'), ttlSeconds, metadata },
      {
        ...{ id: item.id, state: item.state, lastHeartbeat: item.lastHeartbeat, replaced: item.replaced },
        ...{ ttlSeconds: item.ttlSeconds, metadata: item.metadata },
      },
      `the row of ${item.name}`,
    );
    const expected = item.leaseSeconds;
    const agrees =
      leaseSeconds === null || expected === null
        ? leaseSeconds === expected
        : leaseSeconds <= expected && leaseSeconds > expected - SECONDS_PASSED_MAX;
    assert(agrees, `the lease of ${item.name} is ${leaseSeconds} s, expected ${expected} s`);
  }

  /** Nothing is lost and nothing held is offered: what a poll of many takers would get, undone again. */
  private async checkReachable(environmentId: string): Promise<void> {
    const undone: Database = {
      ...this.database,
      rows: (statement) => this.database.rows(statement, this.client),
    };
    const takers = Array.from({ length: this.items.length + 1 }, () => ({
      workerId: null,
      reclaimOlderThanMs: 60_000,
    }));
    await this.client.query('begin');
    const look = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };
    const offered = await poll(undone, environmentId, takers, look).finally(() => this.client.query('rollback'));
    assert.deepEqual(
      offered.handOuts.flatMap((handOut) => (handOut === null ? [] : [this.named(handOut.item.seq)])).sort(),
      this.items.flatMap((i) => (i.environmentId === environmentId && isClaimable(i) ? [i.name] : [])).sort(),
      'what a poll would be offered',
    );
  }

  met(verb: string, state: string, result: string): string {
    const cell = `${verb}, ${state}: ${result}`;
    this.cells.set(cell, (this.cells.get(cell) ?? 0) + 1);
    return result;
  }

  named(seq: string): string {
    return this.items.find((item) => item.seq === seq)?.name ?? `unknown item ${seq}`;
  }

  /** Tests move rows, not clocks. */
  async moveLease(item: ModelItem, secondsAgo: number): Promise<void> {
    const { workItems } = this.database.names;
    await this.database.rows(sql`
      update ${workItems} set lease_expires_at = clock_timestamp() - ${secondsAgo} * interval '1 second'
      where seq = ${item.seq}`);
  }

  /** Empties the table. */
  async reset(): Promise<void> {
    const { workItems, handOuts } = this.database.names;
    await this.database.rows(sql`delete from ${handOuts}`);
    await this.database.rows(sql`delete from ${workItems}`);
    this.items.length = 0;
    this.rows.clear();
  }
}
