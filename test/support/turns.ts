import { answerOf, type Sender, type SentEvent } from '../../src/sessions/events.ts';
import { type KnownCall, type Step, statusEvent, type Turn, takeEvents } from '../../src/sessions/turn.ts';
import {
  ASKED,
  CUSTOM,
  customResult,
  DENIED,
  INTERRUPT,
  inShort,
  MESSAGE,
  result,
  SAID,
  TOOL,
  verdict,
} from './sessions.ts';

/** What is sent, by its name; a number is that of a call, in the order they were made. */
const EVENTS: Readonly<Record<string, (callId: string) => object>> = {
  message: () => MESSAGE,
  interrupt: () => INTERRUPT,
  said: () => SAID,
  tool: () => TOOL,
  ask: () => ASKED,
  deny: () => DENIED,
  custom: () => CUSTOM,
  result,
  own: customResult, // from the agent's side
  ran: customResult, // from a worker
  allow: (id) => verdict(id, 'allow'),
  refuse: (id) => verdict(id, 'deny'),
};
const CALLS = new Set(['agent.tool_use', 'agent.custom_tool_use']);

/** Appends one after the other, and what is told after each. */
export const SEQUENCES: readonly (readonly (readonly [step: string, told: string])[])[] = [
  [
    ['message', 'running'],
    ['tool', 'requires 0'],
    ['result 0', 'running'],
    ['said', 'end_turn'],
    ['said', 'end_turn'],
  ],
  [
    ['tool', 'requires 0'],
    ['tool', 'requires 0 1'],
    ['result 0', 'requires 1'],
    ['result 0', '-'],
    ['result 1', 'running'],
  ],
  [
    ['tool, tool, tool', 'requires 0 1 2'],
    ['result 2, result 0', 'requires 1'],
    ['result 1', 'running'],
    ['tool', 'requires 3'],
  ],
  [
    ['ask', 'requires 0'],
    ['allow 0', '-'],
    ['allow 0', '-'],
    ['result 0', 'running'],
  ],
  [
    ['ask', 'requires 0'],
    ['refuse 0', 'running'],
    ['refuse 0', '-'],
    ['said', 'end_turn'],
  ],
  [
    ['ask, tool', 'requires 0 1'],
    ['result 1', 'requires 0'],
    ['allow 0', '-'],
    ['refuse 0', 'running'],
  ],
  [
    ['ask', 'requires 0'],
    ['allow 0, refuse 0', 'running'],
  ],
  [
    ['deny', 'running'],
    ['said', 'end_turn'],
    ['deny, said', 'end_turn'],
    ['said, deny', 'running'],
    ['deny', '-'],
  ],
  [
    ['tool, deny', 'requires 0'],
    ['deny', '-'],
    ['result 0', 'running'],
  ],
  [
    ['tool', 'requires 0'],
    ['refuse 0', 'running'],
    ['refuse 0', '-'],
  ],
  [
    ['custom', 'requires 0'],
    ['own 0', 'running'],
    ['custom', 'requires 1'],
    ['ran 1', 'running'],
  ],
  [
    ['custom', 'requires 0'],
    ['own 0, said', 'end_turn'],
  ],
  [
    ['custom', 'requires 0'],
    ['own 0, tool', 'requires 1'],
    ['message', '-'],
    ['result 1', 'running'],
  ],
  [
    ['message, said', 'end_turn'],
    ['said, message', 'running'],
    ['message', '-'],
    ['interrupt', 'end_turn'],
    ['interrupt', 'end_turn'],
  ],
  [
    ['message, tool', 'requires 0'],
    ['interrupt', '-'],
    ['said', '-'],
    ['result 0', 'running'],
    ['interrupt, message', '-'],
  ],
  [
    ['interrupt', 'end_turn'],
    ['message, interrupt', 'end_turn'],
    ['tool, interrupt', 'requires 0'],
    ['refuse 0, interrupt', 'end_turn'],
  ],
  [
    ['ask, custom, tool', 'requires 0 1 2'],
    ['allow 0', '-'],
    ['result 2', 'requires 0 1'],
    ['refuse 0', 'requires 1'],
    ['own 1', 'running'],
  ],
];

export type Sent = { readonly events: object[]; readonly sender: Sender };

/** `message, tool` or `result 0`: one append. */
export function read(step: string, calls: readonly string[]): Sent {
  const parts = step.split(', ').map((part) => part.split(' '));
  const sender = parts.some(([name]) => name === 'result' || name === 'ran') ? 'worker' : 'agent';
  const events = parts.map(([name = '', number]) => {
    const event = EVENTS[name];
    if (event === undefined) throw new Error(`no event is called ${name}`);
    return event(calls[Number(number)] ?? '');
  });
  return { events, sender };
}

/** What is told of a step, the calls by their numbers; `-`: nothing. */
export const tellShort = (event: Parameters<typeof inShort>[0] | null | undefined, calls: readonly string[]): string =>
  event?.stop_reason?.type === 'requires_action'
    ? `requires ${event.stop_reason.event_ids.map((id: string) => calls.indexOf(id)).join(' ')}`
    : event
      ? inShort(event)
      : '-';

export const FRESH: Turn = { status: 'idle', stopReason: null, openCalls: [], workerTools: [] };

/** Takes appends one after the other as the relay does, without it. */
export function inMemory(start: Turn = FRESH) {
  const calls: string[] = start.openCalls.map(({ id }) => id);
  const known = new Map<string, { type: string; answers: { type: string; event: string }[] }>();
  for (const { id, kind } of start.openCalls)
    known.set(id, { type: kind === 'tool' ? 'agent.tool_use' : 'agent.custom_tool_use', answers: [] });
  let turn = start;
  let events = 0;
  return {
    turn: () => turn,
    take(step: string): Step & { told: string } {
      const { events: sent, sender } = read(step, calls);
      const fresh = sent.map((event) => ({ id: `event ${events++}`, sent: event as SentEvent }));
      const taken = takeEvents(turn, fresh, sender, known as ReadonlyMap<string, KnownCall>);
      for (const [index, { id, sent: event }] of fresh.entries()) {
        if (taken.repeats[index] !== null) continue;
        if (CALLS.has(event.type)) {
          calls.push(id);
          known.set(id, { type: event.type, answers: [] });
        }
        const answer = answerOf(event);
        if (answer !== null)
          known.get(answer.callId)?.answers.push({ type: event.type, event: JSON.stringify({ id, ...event }) });
      }
      const isNew = taken.repeats.includes(null);
      const told = isNew ? tellShort(statusEvent(turn, taken.turn), calls) : '-';
      if (isNew) turn = taken.turn;
      return { ...taken, told };
    },
  };
}
