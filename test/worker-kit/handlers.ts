import { appendFileSync } from 'node:fs';
import type { Handler } from '../../src/index.ts';

/** For `leasehold worker`: writes down what it began; what is to hang does so until it was taken over. */
const toolExec: Handler = async ({ sessionId, input, attempt, isReclaimed }, { signal }) => {
  const { file, hangs } = input as { file: string; hangs: boolean };
  appendFileSync(file, `${process.pid} ${sessionId} ${attempt} ${isReclaimed}\n`);
  if (hangs && !isReclaimed) {
    await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  }
  return { result: { sessionId } };
};

export const handlers = { tool_exec: toolExec };
