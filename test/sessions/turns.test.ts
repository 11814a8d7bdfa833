import t from 'tap';
import type { StopReason } from '../../src/sessions/session.ts';
import type { Turn } from '../../src/sessions/turn.ts';
import { FRESH, inMemory, SEQUENCES } from '../support/turns.ts';

const EXHAUSTED: Turn = {
  ...{ status: 'idle', stopReason: { type: 'retries_exhausted' } as StopReason, workerTools: [] },
  openCalls: [
    { id: 'a', kind: 'tool', name: 'bash', isAsked: false },
    { id: 'b', kind: 'custom', name: 'deploy', isAsked: false },
  ],
};

t.test('what is told of each append, as it is worked out', async (t) => {
  for (const sequence of SEQUENCES) {
    const { take } = inMemory();
    t.strictSame(
      sequence.map(([step]) => take(step).told),
      sequence.map(([, told]) => told),
      sequence.map(([step]) => step).join('; '),
    );
  }
});

t.test('what no worker answered stays so until a worker is sent for, or the calls change', async (t) => {
  for (const [step, told] of [
    ['message', 'requires 0 1'],
    ['interrupt', 'requires 0 1'],
    ['tool', 'requires 0 1 2'],
    ['result 0', 'requires 1'],
    ['own 1', 'requires 0'],
    ['said', '-'],
    ['deny', '-'],
  ] as const) {
    t.equal(inMemory(EXHAUSTED).take(step).told, told, step);
  }
});

t.test('a turn that is over by itself begins again', async (t) => {
  const quiet: Turn = { ...FRESH, stopReason: { type: 'end_turn' } };
  for (const [step, told] of [
    ['said', 'end_turn'],
    ['interrupt', 'end_turn'],
    ['message', 'running'],
    ['deny', 'running'],
    ['tool', 'requires 0'],
  ] as const) {
    t.equal(inMemory(quiet).take(step).told, told, step);
  }
});

t.test('a session that has ended is told of no more, and knows what was answered', async (t) => {
  const before = inMemory();
  before.take('tool, tool');
  const answered = before.take('result 0');
  const ended: Turn = { ...answered.turn, status: 'terminated', stopReason: null, openCalls: [] };
  for (const step of [
    'message',
    'interrupt',
    'said',
    'tool',
    'ask',
    'deny',
    'custom',
    'result 1',
    'result 0, result 1',
  ]) {
    t.throws(() => inMemory(ended).take(step), { code: 'session_terminated' }, step);
  }
});
