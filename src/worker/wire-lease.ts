import { type Lease, LeaseError } from '../process/lease.ts';

/** The proof that an item of the wire lane is held: its sessions token, and the last heartbeat that was answered. */
export type WireLease = Lease & {
  readonly environmentId: string;
  readonly id: string;
  readonly sessionsToken: string;
  readonly heartbeat: string;
  /** A heartbeat was told that the item is to end. */
  readonly isCancelRequested: boolean;
};

/** Throws LeaseError lease_lost for the lease of another store. */
export function asWireLease(lease: Lease): WireLease {
  if ('sessionsToken' in lease) return lease as WireLease;
  throw new LeaseError('lease_lost', `the lease of item ${lease.seq} is not one of this store`);
}

export const lostOverWire = ({ id, workerId }: WireLease, cause: unknown): LeaseError =>
  new LeaseError('lease_lost', `${workerId} does not hold item ${id} any more`, { cause });

export const cancelledOverWire = ({ seq }: Lease): LeaseError =>
  new LeaseError('cancelled', `item ${seq} was asked to end: it is not completed`);
