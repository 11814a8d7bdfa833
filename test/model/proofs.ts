import { type Lease, LeaseError } from '../../src/process/lease.ts';
import { itemsOf } from './naming.ts';
import type { Slot } from './operations.ts';
import type { Shown } from './process-operations.ts';
import type { ModelItem, World } from './world.ts';

/** The newest item of a slot, and a proof to be shown for it. Undefined: there is none such. */
export function proofOf(
  world: World,
  { slot, shown }: { readonly slot: Slot; readonly shown: Shown },
): { item: ModelItem; lease: Lease } | undefined {
  const item = itemsOf(world, slot).at(-1);
  const last = item?.proofs.at(-1);
  if (item === undefined || last === undefined) return undefined;
  const lease = shownOf(item, last, shown);
  return lease && { item, lease };
}

function shownOf({ proofs }: ModelItem, last: Lease, shown: Shown): Lease | undefined {
  switch (shown) {
    case 'current':
      return last;
    case 'the one before':
      return proofs.at(-2);
    case 'the first':
      return proofs[0];
    case "another's":
      return { ...last, workerId: 'w3' };
    case 'of another hand-out':
      return { ...last, handOut: last.handOut + 1 };
  }
}

export const isLost = (error: unknown): boolean => error instanceof LeaseError && error.code === 'lease_lost';

/** A refusal of the process lane, as a value. */
export function asLeaseError(error: unknown): LeaseError {
  if (error instanceof LeaseError) return error;
  throw error;
}
