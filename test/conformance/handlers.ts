import { setTimeout as sleep } from 'node:timers/promises';
import type { Handler, HandlerContext } from '../../src/index.ts';

/** The work gets on until it is asked to end. */
async function untilAborted({ signal, progress }: HandlerContext): Promise<void> {
  for (; !signal.aborted; await sleep(20)) progress();
}

/** Told by the input what to do; the hosts are not to differ in what is left of it. */
const toolExec: Handler = async (item, context) => {
  const { act } = item.input as { act: string };
  context.progress();
  switch (act) {
    case 'answer nothing':
      return;
    case 'answer a result':
      return { result: { text: 'naïve \u{1F511}', list: [1, null, { deep: true }], attempt: item.attempt } };
    case 'answer null':
      return { result: null };
    case 'answer what it was given':
      return {
        result: {
          ...{ input: item.input, kind: item.kind, attempt: item.attempt, maxAttempts: item.maxAttempts },
          ...{
            isReclaimed: item.isReclaimed,
            sessionId: item.sessionId,
            metadata: item.metadata,
            trace: item.traceContext,
          },
        },
      };
    case 'tell its seq':
      if (item.attempt === 1) throw new Error(item.seq);
      return { result: item.seq };
    case 'fail once':
      if (item.attempt === 1) throw new RangeError('the first attempt');
      return { result: item.attempt };
    case 'fail always':
      throw new RangeError('never');
    case 'throw what is no error':
      throw { code: 7, text: 'NUL \0 and \ud800' };
    case 'answer nonsense':
      return 5 as never;
    case 'answer too much':
      return { result: 'x'.repeat(300_000) };
    case 'answer what is no JSON':
      return { result: 1n };
    case 'stop when asked':
      await untilAborted(context);
      throw context.signal.reason;
    case 'go on when asked to stop':
      await untilAborted(context);
      return { result: 'late' };
    default:
      throw new Error(`${act}?`);
  }
};

export const handlers = { tool_exec: toolExec };
