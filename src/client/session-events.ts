import type { Static } from 'typebox';
import type { AppendBody } from '../wire/session-events.ts';

/** What may be appended to a session. */
export type SentEvent = Static<typeof AppendBody>['events'][number];

type StatusEvent =
  | { readonly type: 'session.status_running' | 'session.status_terminated' }
  | {
      readonly type: 'session.status_idle';
      readonly stop_reason:
        | { readonly type: 'end_turn' | 'retries_exhausted' }
        | { readonly type: 'requires_action'; readonly event_ids: readonly string[] };
    }
  /** On the stream only: with the session its events are gone. */
  | { readonly type: 'session.deleted' };

/** An event of a session; `processed_at` is the database's instant. */
export type SessionEvent = (SentEvent | StatusEvent) & { readonly id: string; readonly processed_at: string };

/** Nothing comes after it. */
export const isLast = ({ type }: SessionEvent): boolean =>
  type === 'session.status_terminated' || type === 'session.deleted';

/**
 * How far a session's events were read: an instant, and which of that instant. Instants of stored events never go back, and lists and
 * streams are in order, so no more has to be remembered.
 */
export class Position {
  #instant: string;
  readonly #ids: Set<string>;

  /** Without an instant: before the first event. */
  constructor(instant = '', ids: Iterable<string> = []) {
    this.#instant = instant;
    this.#ids = new Set(ids);
  }

  /** What was not taken yet was stored at this instant or later. */
  get instant(): string {
    return this.#instant;
  }

  /** False for an event that was taken before. */
  take({ id, processed_at: instant }: SessionEvent): boolean {
    if (instant < this.#instant || (instant === this.#instant && this.#ids.has(id))) return false;
    if (instant > this.#instant) this.#ids.clear();
    this.#instant = instant;
    this.#ids.add(id);
    return true;
  }

  copy(): Position {
    return new Position(this.#instant, this.#ids);
  }
}
