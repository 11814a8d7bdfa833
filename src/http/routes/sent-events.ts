import type { Caller } from '../../control/credentials.ts';
import { SENDERS, type Sender, type SentEvent } from '../../sessions/events.ts';
import { toSentEvent } from '../../wire/session-events.ts';
import { HttpError } from '../errors.ts';

/** Of bodies that carry events. */
export const EVENTS_BYTES_MAX = 32 * 1_048_576;

export const senderOf = (caller: Caller | undefined): Sender => (caller?.kind === 'api' ? 'agent' : 'worker');

/** As they are kept. Refuses: forbidden for what this sender may not say. */
export function readEvents(given: readonly SentEvent[], sender: Sender): SentEvent[] {
  const foreign = given.find(({ type }) => !(SENDERS[type] as readonly Sender[]).includes(sender));
  if (foreign !== undefined) throw new HttpError('forbidden', `this credential may not send ${foreign.type}`);
  return given.map(toSentEvent);
}
