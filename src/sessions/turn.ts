import { QueueError } from '../queue/errors.ts';
import { LIMITS } from '../queue/limits.ts';
import { answerOf, type Sender, type SentEvent } from './events.ts';
import type { SessionStatus, StopReason } from './session.ts';

/** A call that nobody has answered. `tool` is run by a worker; `custom` by whoever owns the tool. */
export type OpenCall = {
  readonly id: string;
  readonly kind: 'tool' | 'custom';
  readonly name: string;
  /** Held until somebody allows it. */
  readonly isAsked: boolean;
};

/** What an append decides by, and leaves behind. */
export type Turn = {
  readonly status: SessionStatus;
  readonly stopReason: StopReason | null;
  readonly openCalls: readonly OpenCall[];
  /** Custom tools that a worker has answered in this session: it owns them. */
  readonly workerTools: readonly string[];
};

/** A call that is known by its event, and what was stored in answer to it. */
export type KnownCall = { readonly type: string; readonly answers: readonly { type: string; event: string }[] };

/** An event that is to be stored, under the id that it will have. */
export type NewEvent = { readonly id: string; readonly sent: SentEvent };

/** For each event: null where it is new; else the stored event that it repeats, or the number of the earlier one of this call. */
export type Repeat = string | number | null;

export type Step = {
  readonly turn: Turn;
  readonly repeats: readonly Repeat[];
  /**
   * Whether a worker is to be enqueued. `always`: whatever kept workers away before is over. `needed`: there is a call, or leave for one, that
   * a worker runs, unless a later event took it back; what only others can do ends no hold.
   */
  readonly arms: 'always' | 'needed' | null;
  /** A worker answered: the next loss of one counts as the first. */
  readonly isProgress: boolean;
};

/**
 * What a session comes to by events. Pure, over what its locked row says and over `known`, the calls that are named and not open. The
 * first result of a call wins; a repeat is answered with it. `where` names the list that they were sent in. Refuses, for all of them: invalid_request; session_terminated for
 * anything new, before it is looked at.
 */
export function takeEvents(
  before: Turn,
  events: readonly NewEvent[],
  sender: Sender,
  known: ReadonlyMap<string, KnownCall>,
  where = 'events',
): Step {
  const open = new Map(before.openCalls.map((call) => [call.id, call]));
  /** Answers of this call, by what they answer. */
  const answeredHere = new Map<string, number>();
  const workerTools = new Set(before.workerTools);
  const repeats: Repeat[] = [];
  let arms: Step['arms'] = null;
  let isProgress = false;
  let move: 'agent' | 'over' | undefined;

  const refuse = (index: number, problem: string): never => {
    throw new QueueError('invalid_request', `${where}.${index}.${problem}`);
  };

  const answer = (index: number, sent: SentEvent): void => {
    const { field, callId } = answerOf(sent) ?? { field: '', callId: '' };
    const key = JSON.stringify([callId, sent.type, 'result' in sent ? sent.result : null]);
    const repeated = answeredHere.get(key) ?? storedAnswer(known.get(callId), sent);
    if (repeated !== undefined) {
      repeats.push(repeated);
      return;
    }
    if (before.status === 'terminated') throw terminated();
    const kind = sent.type === 'user.custom_tool_result' ? 'custom' : 'tool';
    const call = open.get(callId) ?? refuse(index, `${field}: ${whyNotOpen(known.get(callId), kind)}`);
    if (call.kind !== kind) refuse(index, `${field}: ${callId} is not ${ARTICLES[kind]}`);
    if (sent.type === 'user.tool_confirmation') {
      if (sent.result === 'allow') {
        if (!call.isAsked) refuse(index, `${field}: ${callId} does not wait for a confirmation`);
        open.set(callId, { ...call, isAsked: false });
        arms ??= 'needed';
      } else {
        open.delete(callId);
        move = 'agent';
      }
    } else {
      if (call.isAsked) refuse(index, `${field}: ${callId} waits for a confirmation`);
      open.delete(callId);
      move = 'agent';
      if (sender === 'worker') {
        isProgress = true;
        if (kind === 'custom') workerTools.add(call.name);
      }
    }
    answeredHere.set(key, index);
    repeats.push(null);
  };

  const ask = (id: string, kind: OpenCall['kind'], name: string, permission = 'allow'): void => {
    if (permission === 'deny') {
      move = 'agent'; // resolved as it is made: never run
      return;
    }
    const call = { id, kind, name, isAsked: permission === 'ask' };
    open.set(id, call);
    if (isRunnable(call, workerTools)) arms ??= 'needed';
  };

  for (const [index, { id, sent }] of events.entries()) {
    if (before.status === 'terminated' && answerOf(sent) === null) throw terminated();
    switch (sent.type) {
      case 'user.message':
        [arms, move] = ['always', 'agent'];
        break;
      case 'user.interrupt':
        [arms, move] = ['always', 'over'];
        break;
      case 'agent.message':
        move = 'over';
        break;
      case 'agent.tool_use':
        ask(id, 'tool', sent.name, sent.evaluated_permission);
        break;
      case 'agent.custom_tool_use':
        ask(id, 'custom', sent.name);
        break;
      default:
        answer(index, sent);
        continue;
    }
    repeats.push(null);
  }
  if (open.size > LIMITS.openCalls) {
    throw new QueueError(
      'invalid_request',
      `${where}: at most ${LIMITS.openCalls} calls may be open, this would make ${open.size}`,
    );
  }
  const openCalls = [...open.values()];
  return {
    turn: { ...comeTo(before, openCalls, move, arms === 'always'), openCalls, workerTools: [...workerTools] },
    repeats,
    arms,
    isProgress,
  };
}

const terminated = () => new QueueError('session_terminated', 'the session is terminated: it takes no more events');

function comeTo(
  before: Turn,
  openCalls: readonly OpenCall[],
  move: 'agent' | 'over' | undefined,
  isArmed: boolean,
): Pick<Turn, 'status' | 'stopReason'> {
  if (openCalls.length > 0) {
    const isSame = JSON.stringify(openCalls) === JSON.stringify(before.openCalls);
    if (isSame && !isArmed) return before; // `retries_exhausted` stays: nobody is sent for
    return { status: 'idle', stopReason: { type: 'requires_action', event_ids: openCalls.map(({ id }) => id) } };
  }
  switch (move) {
    case 'agent':
      return { status: 'running', stopReason: null };
    case 'over':
      return { status: 'idle', stopReason: { type: 'end_turn' } };
    default:
      return before;
  }
}

const ARTICLES = { tool: 'an agent.tool_use', custom: 'an agent.custom_tool_use' } as const;

function storedAnswer(call: KnownCall | undefined, sent: SentEvent): string | undefined {
  const stored = call?.answers.filter(({ type }) => type === sent.type) ?? [];
  if (sent.type !== 'user.tool_confirmation') return stored[0]?.event;
  return stored.find(({ event }) => JSON.parse(event).result === sent.result)?.event;
}

function whyNotOpen(call: KnownCall | undefined, kind: OpenCall['kind']): string {
  if (call === undefined) return 'no such call in this session';
  if (call.type !== (kind === 'tool' ? 'agent.tool_use' : 'agent.custom_tool_use'))
    return `it is not ${ARTICLES[kind]}`;
  return call.answers.some(({ type }) => type !== 'user.tool_confirmation')
    ? 'the call has its result'
    : 'the call was denied: its result is not taken';
}

/** Whether a worker that attaches would run something: what is asked for waits, and a custom tool may be somebody else's. */
export const needsWorker = ({ openCalls, workerTools }: Pick<Turn, 'openCalls' | 'workerTools'>): boolean =>
  openCalls.some((call) => isRunnable(call, new Set(workerTools)));

const isRunnable = ({ kind, name, isAsked }: OpenCall, workerTools: ReadonlySet<string>): boolean =>
  !isAsked && (kind === 'tool' || workerTools.has(name));

export type StatusEvent =
  | { readonly type: 'session.status_running' | 'session.status_terminated' }
  | { readonly type: 'session.status_idle'; readonly stop_reason: StopReason; readonly stop_details: null };

/**
 * What is told of events by which a turn came to something else than it was; null where it did not. That it is over is told again: an
 * official worker that has seen it counts down to its leave, any later event ends that, and only this begins it anew.
 */
export function statusEvent(
  before: Turn,
  { status, stopReason }: Pick<Turn, 'status' | 'stopReason'>,
): StatusEvent | null {
  const isSame = before.status === status && JSON.stringify(before.stopReason) === JSON.stringify(stopReason);
  if (isSame && stopReason?.type !== 'end_turn') return null;
  if (status === 'idle' && stopReason !== null) {
    return { type: 'session.status_idle', stop_reason: stopReason, stop_details: null };
  }
  return { type: status === 'terminated' ? 'session.status_terminated' : 'session.status_running' };
}
