import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import { lapsedItems, queuedItems, refusedItems } from '../../src/process/free-items.ts';
import { type Look, poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { claimable } from './process-lane.ts';
import * as wire from './wire-lane.ts';
import type { World } from './world.ts';

type Offer = [environmentId: string, Look];

/** What a poll of more takers than there are items would get, undone again. */
export async function readOffers({ database, client, items }: World, environmentIds: string[]): Promise<Offer[]> {
  const undone: Database = { ...database, rows: (statement) => database.rows(statement, client) };
  const takers = Array.from({ length: items.length + 1 }, () => ({ workerId: null, reclaimOlderThanMs: 60_000 }));
  const offers: Offer[] = [];
  for (const environmentId of environmentIds) {
    await client.query('begin');
    const look = await poll(undone, environmentId, takers, { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 }).finally(() =>
      client.query('rollback'),
    );
    offers.push([environmentId, look]);
  }
  return offers;
}

/** All that claims choose from, whatever the kind, in their order; undefined where no row has to do with them. */
export async function readClaims({ database, queue, items, environmentOf }: World): Promise<string[] | undefined> {
  if (!items.some(({ lane, environmentId }) => lane === 'process' || environmentOf(environmentId).fallsBack)) {
    return undefined;
  }
  const [names, all] = [database.names, sql`true`];
  const sorts = [
    queuedItems(names, all),
    lapsedItems(names, all, queue.settings),
    refusedItems(names, all, queue.settings),
  ];
  const rows = await database.rows(sql<{ seq: string }>`
    select c.seq::text as seq from (${sql.join(sorts, sql` union all `)}) c order by c.priority desc, c.seq`);
  return rows.map(({ seq }) => seq);
}

/** Nothing is lost, nothing held is offered, and what is spent is set aside. */
export function checkReachable(world: World, offers: readonly Offer[], claims: readonly string[] | undefined): void {
  for (const [environmentId, { handOuts, setAside }] of offers) {
    const environment = world.environmentOf(environmentId);
    const seen = wire.look(world.itemsIn(environmentId), environment, Number.POSITIVE_INFINITY);
    assert.deepEqual(
      handOuts.flatMap((handOut) => (handOut === null ? [] : [world.named(handOut.item.seq)])).sort(),
      seen.flatMap((item) => (wire.isSpent(item, environment) ? [] : [item.name])).sort(),
      'what a poll would be offered',
    );
    const spent = seen.filter((item) => wire.isSpent(item, environment));
    assert.equal(setAside, spent.length, 'what a poll would set aside');
  }
  if (claims === undefined) return;
  assert.deepEqual(
    claims.map((seq) => world.named(seq)),
    claimable(world.items, world.environmentOf).map(({ name }) => name),
    'what claims would take',
  );
}
