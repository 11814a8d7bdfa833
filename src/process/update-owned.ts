import type { Database } from '../db/connect.ts';
import type { WorkItem } from '../queue/items.ts';
import { type MetadataPatch, mergeMetadata } from '../queue/metadata.ts';
import { isOwned, type Lease, leaseLost } from './lease.ts';

/**
 * The owner's write of progress: merges metadata, with the proof, as `patchMetadata` does. Refuses: invalid_metadata. Throws
 * LeaseError lease_lost.
 */
export async function updateOwned(database: Database, lease: Lease, patch: MetadataPatch): Promise<WorkItem> {
  const merged = await mergeMetadata(database, isOwned(lease), patch);
  if ('presentId' in merged) throw leaseLost(lease);
  return merged;
}
