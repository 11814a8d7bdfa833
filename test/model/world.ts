import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type pg from 'pg';
import type { Queue } from '../../src/create-queue.ts';
import type { Database } from '../../src/db/connect.ts';
import { rfc3339 } from '../../src/db/sql.ts';
import type { Candidate, ExpiredLease } from '../../src/process/candidates.ts';
import type { Lease } from '../../src/process/lease.ts';
import type { HandOut } from '../../src/queue/poll.ts';
import * as model from './model.ts';
import { placeOf } from './naming.ts';
import { checkReachable, readClaims, readOffers } from './offers.ts';
import type { Letter, Slot } from './operations.ts';
import { checkRow, type Row, rowColumns } from './rows.ts';

export type ModelItem = model.Item<HandOut> & {
  /** `A/s1` or, of the second item of that session, `A/s1'`. */
  readonly name: string;
  readonly slot: Slot;
  readonly handOuts: HandOut[];
  /** Every token it ever had, oldest first. */
  readonly tokens: string[];
  /** Every proof that it was ever claimed or extended by, oldest first. */
  readonly proofs: Lease[];
};

/** What the database gives a new item. */
export type Born = { readonly id: string; readonly seq: string; readonly createdAt: string };

/** The library over one database, and the model of what is in it. */
export class World {
  readonly items: ModelItem[] = [];
  /** Which item each request id is remembered for, by environment and request id. */
  readonly requests = new Map<string, ModelItem>();
  /** What looks and scans have answered so far: owns nothing, and may be stale by now. */
  readonly candidates: Candidate[] = [];
  readonly expired: ExpiredLease[] = [];
  /** How often each cell of the state table was met, so that a run can show that it is not idle. */
  readonly cells = new Map<string, number>();
  /** How many items each slot has had, those that were pruned included. */
  private readonly timesUsed = new Map<string, number>();
  private readonly places = new Map<string, model.Environment>();
  private rows = new Map<string, string>();
  readonly database: Database;
  readonly queue: Queue;
  /** By the letter that histories call them. */
  readonly environments: Readonly<Record<Letter, string>>;
  /** A connection of its own, for what is undone again. */
  readonly client: pg.Client;

  constructor(database: Database, queue: Queue, environments: Record<Letter, string>, client: pg.Client) {
    this.database = database;
    this.queue = queue;
    this.environments = environments;
    this.client = client;
  }

  /** The tables against the model: what each row must be, that nothing but `changed` has changed, and what is on offer. */
  async check(changed: ReadonlySet<ModelItem>, environments: readonly string[]): Promise<void> {
    const polled = this.items.filter(({ slot }) => placeOf(this, slot).lane === 'wire');
    const places = new Set([...[...changed].map((item) => item.environmentId), ...environments]);
    for (const id of places) if (!polled.some(({ environmentId }) => environmentId === id)) places.delete(id);
    const { workItems } = this.database.names;
    const [rows, facts, offers, claims] = await Promise.all([
      this.database.rows(sql<Row>`select ${rowColumns} from ${workItems} w order by w.seq`),
      this.readFacts(),
      readOffers(this, [...places]),
      changed.size + environments.length === 0 ? undefined : readClaims(this),
    ]);
    const bySeq = new Map(rows.map((row) => [row.seq, row]));
    assert.equal(rows.length, this.items.length, 'each item is one row, and there is no other');
    for (const item of this.items) {
      const row = bySeq.get(item.seq);
      assert(row, `${item.name} is in the table`);
      checkRow(item, row);
      if (!changed.has(item)) {
        assert.equal(row.whole, this.rows.get(item.seq), `the row of ${item.name} stays as it was`);
      }
    }
    this.rows = new Map(rows.map((row) => [row.seq, row.whole]));
    const slots = this.items.filter(model.isLive).map((item) => item.slot);
    assert.equal(new Set(slots).size, slots.length, 'unique while live');
    assert.deepEqual(facts, this.facts(), 'superseded ids, remembered requests and settings are exactly these');
    checkReachable(this, offers, claims);
  }

  /** What is known beside the items. */
  private async readFacts(): Promise<string[]> {
    const { handOuts, requestIds, environments, workResults } = this.database.names;
    const facts = await this.database.rows(sql<{ fact: string }>`
      select h.item_seq || ' was ' || h.work_id || case when h.reason in ('released', 'failed') then ' ' || h.reason else '' end as fact
        from ${handOuts} h
      union all select r.item_seq || ' has ' || r.result from ${workResults} r
      union all select r.item_seq || ' answers ' || r.environment_id || ' ' || r.request_id from ${requestIds} r
      union all select e.id || ' paused ' || (e.paused_at is not null)::text || ' cap ' || coalesce(e.max_hand_outs::text, 'none')
        || case when e.fallback_after_ms is null then '' else ' falls back' end
        from ${environments} e`);
    return facts.map(({ fact }) => fact).sort();
  }

  private facts(): string[] {
    return [
      ...this.items.flatMap((item) => {
        const ends = new Map([...item.handedBack].map(([handOut, end]) => [handOut.item.id, end]));
        return item.oldIds.map((id) => [item.seq, 'was', id, ends.get(id)].filter(Boolean).join(' '));
      }),
      ...this.items.flatMap(({ seq, result }) => (result === null ? [] : [`${seq} has ${result}`])),
      ...[...this.requests].map(([request, item]) => `${item.seq} answers ${request}`),
      ...Object.values(this.environments).map((id) => {
        const { isPaused, maxHandOuts, fallsBack } = this.environmentOf(id);
        return `${id} paused ${isPaused} cap ${maxHandOuts ?? 'none'}${fallsBack ? ' falls back' : ''}`;
      }),
    ].sort();
  }

  met(verb: string, state: string, result: string): string {
    const cell = `${verb}, ${state}: ${result}`;
    this.cells.set(cell, (this.cells.get(cell) ?? 0) + 1);
    return result;
  }

  named(seq: string): string {
    return this.items.find((item) => item.seq === seq)?.name ?? `unknown item ${seq}`;
  }

  itemsIn = (environmentId: string): ModelItem[] => this.items.filter((item) => item.environmentId === environmentId);

  environmentOf = (id: string): model.Environment => {
    const known = this.places.get(id) ?? { isPaused: false, maxHandOuts: null, fallsBack: false };
    this.places.set(id, known);
    return known;
  };

  /** A proof is never given out twice: whoever has an older one holds nothing. */
  prove(item: ModelItem, lease: Lease): void {
    const isNew = !item.proofs.some((old) => old.handOut === lease.handOut && old.expiresAt === lease.expiresAt);
    assert(isNew, `the proof of ${item.name} is another one than before`);
    item.proofs.push(lease);
  }

  add(slot: Slot, born: Born, work: model.Work, requeuedFrom: string | null = null): ModelItem {
    const times = this.timesUsed.get(slot) ?? 0;
    this.timesUsed.set(slot, times + 1);
    const { id, seq, createdAt } = born;
    const fresh = model.newItem(placeOf(this, slot), { id, seq, createdAt }, work, requeuedFrom);
    const item: ModelItem = {
      ...fresh,
      ...{ reservedBy: null, heldBy: null, handedBack: new Map() },
      name: slot + "'".repeat(times),
      slot,
      handOuts: [],
      tokens: [],
      proofs: [],
    };
    this.items.push(item);
    return item;
  }

  /** The rows of all follow-ups that were enqueued, by the id that was minted for them; they may have been handed out since. */
  async born(): Promise<ReadonlyMap<string, Born>> {
    const awaited = this.items.flatMap(({ followUp }) => (followUp === null ? [] : [followUp.id]));
    if (awaited.length === 0) return new Map();
    const rows = await this.database.rows(sql<Born>`
      select w.id, w.seq::text, ${rfc3339(sql`w.created_at`)} as "createdAt"
      from ${this.database.names.workItems} w where w.id = any(${awaited})`);
    return new Map(rows.map((row) => [row.id, row]));
  }

  /** Enqueues what follows an item that was in state `before`, if it has left its slot and something does. */
  follow(verb: string, before: model.State, item: ModelItem, born: ReadonlyMap<string, Born>): ModelItem[] {
    const { followUp, state, name } = item;
    if (followUp === null || !model.isFollowed(before, item)) return [];
    this.met(`${verb} with a follow-up`, before, state);
    const row = born.get(followUp.id);
    assert(row, `the follow-up of ${name} was enqueued with its end, under the id that was minted for it`);
    return [this.add(item.slot, row, followUp)];
  }

  /** An item is gone, and with it all that is known of it. */
  forget(item: ModelItem): void {
    this.items.splice(this.items.indexOf(item), 1);
    for (const [request, known] of this.requests) if (known === item) this.requests.delete(request);
  }

  /** Tests move rows, not clocks. Who holds the item by its lease has been given the moved one. */
  async moveLease(item: ModelItem, secondsAgo: number): Promise<void> {
    const { workItems } = this.database.names;
    const [row] = await this.database.rows(sql<{ expiresAt: string }>`
      update ${workItems} w set lease_expires_at = clock_timestamp() - ${secondsAgo} * interval '1 second'
      where w.seq = ${item.seq} returning ${rfc3339(sql`w.lease_expires_at`)} as "expiresAt"`);
    const held = item.proofs.pop();
    if (row === undefined || held === undefined || item.proof === null) return;
    item.proof = { ...item.proof, ...row };
    item.proofs.push({ ...held, ...row });
  }

  /** Empties the tables. */
  async reset(): Promise<void> {
    const { workItems, environments } = this.database.names;
    await this.database.rows(sql`
      with changed as (update ${environments} set paused_at = null, max_hand_outs = null, fallback_after_ms = null) delete from ${workItems}`);
    for (const list of [this.items, this.candidates, this.expired]) list.length = 0;
    for (const map of [this.requests, this.timesUsed, this.places, this.rows]) map.clear();
  }
}
