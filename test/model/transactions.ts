import assert from 'node:assert/strict';
import type { CallerTransaction } from '../../src/db/connect.ts';
import type { Within } from './process-operations.ts';
import type { World } from './world.ts';

class RolledBack extends Error {}

/** Runs a verb by itself, or in a transaction of the caller's, which then commits or is rolled back. */
export async function inside<Answer>(
  { queue }: World,
  within: Within,
  run: (transaction?: CallerTransaction) => Promise<Answer>,
): Promise<Answer> {
  if (within === 'alone') return run();
  const answers: Answer[] = [];
  await queue
    .transaction(async (transaction) => {
      answers.push(await run(transaction));
      if (within === 'rolled back') throw new RolledBack();
    })
    .catch((error: unknown) => {
      if (!(error instanceof RolledBack)) throw error;
    });
  const [answer] = answers;
  assert(answer !== undefined, 'it was answered');
  return answer;
}
