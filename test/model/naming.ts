import * as model from './model.ts';
import type { Letter, Slot, Target, Token } from './operations.ts';
import { KINDS } from './process-lane.ts';
import * as wire from './wire-lane.ts';
import type { ModelItem, World } from './world.ts';

export type Named = { item: ModelItem; ref: { environmentId: string; id: string }; isFound: boolean; label: string };

export const nameOf = (item: ModelItem): string => item.name;
export const names = (items: Iterable<ModelItem>): string => [...items].map(nameOf).join(', ') || 'none';
export const itemsOf = (world: World, slot: Slot): ModelItem[] => world.items.filter((item) => item.slot === slot);

export function placeOf(world: World, slot: Slot) {
  const [letter = '', sessionId = '', named = 'tool_exec'] = slot.split(/[/ ]/);
  const environmentId = world.environments[letter as Letter];
  const kind = KINDS.find((one) => one === named) ?? 'tool_exec';
  const lane: model.Lane = kind === 'tool_exec' && letter !== 'C' ? 'wire' : 'process';
  return { environmentId, sessionId, kind, lane };
}

/** The targets that exist, with the ids by which the step calls them. */
export function nameAll(world: World, targets: readonly Target[]): Named[] {
  return targets.flatMap(({ slot, before, oldId, elsewhere }) => {
    const item = itemsOf(world, slot).at(before ? -2 : -1);
    const id = oldId ? item?.oldIds.at(-1) : item?.id;
    if (item === undefined || id === undefined) return [];
    const { A, B } = world.environments;
    const environmentId = elsewhere ? (item.environmentId === A ? B : A) : item.environmentId;
    return {
      ...{ item, ref: { environmentId, id }, isFound: !oldId && !elsewhere && model.isVisible(item) },
      label: `${item.name}${oldId ? ' by its old id' : ''}${elsewhere ? ' through the other environment' : ''}`,
    };
  });
}

export function tokenOf(item: ModelItem, token: Token): string {
  const never = '2020-01-01T00:00:00.000000Z';
  const place = item.tokens.indexOf(item.lastHeartbeat ?? '');
  switch (token) {
    case 'NO_HEARTBEAT':
      return wire.NO_HEARTBEAT;
    case 'current':
      return item.lastHeartbeat ?? wire.NO_HEARTBEAT;
    case 'replaced':
      return item.replaced ?? never;
    case 'stale':
      return item.tokens[place - 2] ?? never;
    case 'from before the re-hand-out':
      return item.lastHeartbeat === null ? (item.tokens.at(-1) ?? never) : (item.tokens[0] ?? never);
    case 'never given out':
      return never;
  }
}

/** What is out of the ordinary, for the history. */
export const detail = (values: Readonly<Record<string, unknown>>): string =>
  Object.entries(values)
    .filter(([, value]) => value !== undefined && value !== null && value !== false && value !== 0 && value !== 'none')
    .map(([name, value]) => (value === true ? ` ${name}` : ` ${name}=${value}`))
    .join('');

export const pairs = (named: readonly Named[], results: readonly string[]): string =>
  named.map(({ label }, n) => `${label} → ${results[n]}`).join('; ');
