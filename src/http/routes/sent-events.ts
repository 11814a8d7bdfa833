import type { Caller } from '../../control/credentials.ts';
import { isRecord, isStorable, keysOf } from '../../queue/limits.ts';
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

const RESULTS: ReadonlySet<unknown> = new Set(['user.tool_result', 'user.custom_tool_result']);

/**
 * What a tool printed may hold what no text here may, NUL and unpaired surrogates. A refusal would leave the call open, and its worker with
 * it, for good: each such character becomes U+FFFD, in the content of results alone (contract §7, where it says otherwise of all else, D).
 * In place; not recursive: JSON may nest as it likes.
 */
export function mendOutputs(body: unknown): void {
  const events = isRecord(body) && Array.isArray(body.events) ? body.events : [];
  const left: unknown[] = events
    .filter((event) => isRecord(event) && RESULTS.has(event.type))
    .map(({ content }) => content);
  while (left.length > 0) {
    const next = left.pop();
    if (!isRecord(next)) continue;
    for (const key of keysOf(next)) {
      const value = next[key];
      if (isRecord(value)) left.push(value);
      else if (typeof value === 'string') next[key] = mendText(value);
    }
  }
}

const mendText = (text: string): string =>
  isStorable(text) ? text : (text as string).toWellFormed().replaceAll('\0', '\uFFFD');
