import type { Call, CallOf } from './calls.ts';
import { micros, type Version } from './log.ts';
import type { Timeline } from './timeline.ts';

export type Hold = { readonly sessions: readonly string[]; readonly begun: number; readonly ended: number };

/**
 * What a poll that does not wait and was answered null should have been given: an item that was free from before it began until after it
 * ended, while nobody else could have its row locked. Undefined where there is none.
 */
export function passedOver(
  { items, calls, next }: Timeline,
  holds: readonly Hold[],
  poll: CallOf<'poll'>,
): Version | undefined {
  const isBeside = ({ begun, ended }: { begun: number; ended: number }) => begun < poll.ended && ended > poll.begun;
  const beside = calls.filter((call) => call !== poll && isBeside(call));
  // Nobody knows what a connection that broke has locked, and until when.
  if (beside.some(({ outcome }) => outcome.kind === 'unknown' && outcome.why !== 'left')) return undefined;
  return [...items.values()].map(present).find((version) => version !== undefined && isFree(version));

  function present(item: readonly Version[]): Version | undefined {
    return item.find((version) => {
      const after = next(version);
      return version.committedBefore < poll.begun && (after === undefined || after.since > poll.notAfter);
    });
  }

  function isFree({ row }: Version): boolean {
    const hasLapsed = row.lease_expires_at !== null && micros(row.lease_expires_at) < poll.notBefore;
    const isOffered =
      row.state === 'queued' ? row.lease_expires_at === null || hasLapsed : isHeld(row.state) && hasLapsed;
    const isDue = row.not_before === null || micros(row.not_before) < poll.notBefore;
    const isSpent = row.max_hand_outs !== null && row.hand_out_count >= row.max_hand_outs;
    const isLocked =
      [...beside.filter((call) => names(call, items.get(row.seq) ?? [])), ...holds.filter(isBeside)].length > 0;
    return isOffered && isDue && !isSpent && !isLocked;
  }
}

const isHeld = (state: string): boolean => state === 'starting' || state === 'active';

/** A refusal locks the row, too, for as long as it takes. */
function names(call: Call, item: readonly Version[]): boolean {
  if ('id' in call) return item.some(({ row }) => row.id === call.id);
  const session = item[0]?.row.session_id;
  if (call.verb === 'enqueue') return call.requests.some((request) => request.session === session);
  return call.verb === 'cancel' && call.session === session;
}
