import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type pg from 'pg';
import type { Queue } from '../../src/create-queue.ts';
import type { Database } from '../../src/db/connect.ts';
import { rfc3339 } from '../../src/db/sql.ts';
import { type HandOut, type Look, poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import * as model from './model.ts';
import { placeOf } from './naming.ts';
import type { Letter, Slot } from './operations.ts';
import { checkRow, type Row, rowColumns } from './rows.ts';

export type ModelItem = model.Item<HandOut> & {
  /** `A/s1` or, of the second item of that session, `A/s1'`. */
  readonly name: string;
  readonly slot: Slot;
  readonly handOuts: HandOut[];
  /** Every token it ever had, oldest first. */
  readonly tokens: string[];
};

/** What the database gives a new item. */
export type Born = { readonly id: string; readonly seq: string; readonly createdAt: string };

/** The library over one database, and the model of what is in it. */
export class World {
  readonly items: ModelItem[] = [];
  /** Which item each request id is remembered for, by environment and request id. */
  readonly requests = new Map<string, ModelItem>();
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
  private readonly client: pg.Client;

  constructor(database: Database, queue: Queue, environments: Record<Letter, string>, client: pg.Client) {
    this.database = database;
    this.queue = queue;
    this.environments = environments;
    this.client = client;
  }

  /** The tables against the model: what each row must be, that nothing but `changed` has changed, and what is on offer. */
  async check(changed: ReadonlySet<ModelItem>, environments: readonly string[]): Promise<void> {
    const places = new Set([...[...changed].map((item) => item.environmentId), ...environments]);
    const { workItems } = this.database.names;
    const [rows, facts, offers] = await Promise.all([
      this.database.rows(sql<Row>`select ${rowColumns} from ${workItems} w order by w.seq`),
      this.readFacts(),
      this.readOffers([...places]),
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
    for (const [environmentId, look] of offers) this.checkReachable(environmentId, look);
  }

  /** What is known beside the items. */
  private async readFacts(): Promise<string[]> {
    const { handOuts, requestIds, environments } = this.database.names;
    const facts = await this.database.rows(sql<{ fact: string }>`
      select h.item_seq || ' was ' || h.work_id as fact from ${handOuts} h
      union all select r.item_seq || ' answers ' || r.environment_id || ' ' || r.request_id from ${requestIds} r
      union all select e.id || ' paused ' || (e.paused_at is not null)::text || ' cap ' || coalesce(e.max_hand_outs::text, 'none')
        from ${environments} e`);
    return facts.map(({ fact }) => fact).sort();
  }

  private facts(): string[] {
    return [
      ...this.items.flatMap((item) => item.oldIds.map((id) => `${item.seq} was ${id}`)),
      ...[...this.requests].map(([request, item]) => `${item.seq} answers ${request}`),
      ...Object.values(this.environments).map((id) => {
        const { isPaused, maxHandOuts } = this.environmentOf(id);
        return `${id} paused ${isPaused} cap ${maxHandOuts ?? 'none'}`;
      }),
    ].sort();
  }

  /** What a poll of more takers than there are items would get, undone again. */
  private async readOffers(environmentIds: readonly string[]): Promise<[environmentId: string, Look][]> {
    const undone: Database = { ...this.database, rows: (statement) => this.database.rows(statement, this.client) };
    const takers = Array.from({ length: this.items.length + 1 }, () => ({
      workerId: null,
      reclaimOlderThanMs: 60_000,
    }));
    const offers: [string, Look][] = [];
    for (const environmentId of environmentIds) {
      await this.client.query('begin');
      const look = await poll(undone, environmentId, takers, { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 }).finally(() =>
        this.client.query('rollback'),
      );
      offers.push([environmentId, look]);
    }
    return offers;
  }

  /** Nothing is lost, nothing held is offered, and what is spent is set aside. */
  private checkReachable(environmentId: string, { handOuts, setAside }: Look): void {
    const environment = this.environmentOf(environmentId);
    const seen = model.look(this.itemsIn(environmentId), environment, Number.POSITIVE_INFINITY);
    assert.deepEqual(
      handOuts.flatMap((handOut) => (handOut === null ? [] : [this.named(handOut.item.seq)])).sort(),
      seen.flatMap((item) => (model.isSpent(item, environment) ? [] : [item.name])).sort(),
      'what a poll would be offered',
    );
    const spent = seen.filter((item) => model.isSpent(item, environment));
    assert.equal(setAside, spent.length, 'what a poll would set aside');
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

  environmentOf(id: string): model.Environment {
    const known = this.places.get(id) ?? { isPaused: false, maxHandOuts: null };
    this.places.set(id, known);
    return known;
  }

  add(slot: Slot, born: Born, work: model.Work, requeuedFrom: string | null = null): ModelItem {
    const times = this.timesUsed.get(slot) ?? 0;
    this.timesUsed.set(slot, times + 1);
    const { id, seq, createdAt } = born;
    const fresh = model.newItem(placeOf(this, slot), { id, seq, createdAt }, work, requeuedFrom);
    const item: ModelItem = {
      ...fresh,
      reservedBy: null,
      name: slot + "'".repeat(times),
      slot,
      handOuts: [],
      tokens: [],
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

  /** Tests move rows, not clocks. */
  async moveLease(item: ModelItem, secondsAgo: number): Promise<void> {
    const { workItems } = this.database.names;
    await this.database.rows(sql`
      update ${workItems} set lease_expires_at = clock_timestamp() - ${secondsAgo} * interval '1 second'
      where seq = ${item.seq}`);
  }

  /** Empties the tables. */
  async reset(): Promise<void> {
    const { workItems, environments } = this.database.names;
    await this.database.rows(sql`
      with changed as (update ${environments} set paused_at = null, max_hand_outs = null) delete from ${workItems}`);
    this.items.length = 0;
    for (const map of [this.requests, this.timesUsed, this.places, this.rows]) map.clear();
  }
}
