import { parseSessionsToken } from '../../../src/queue/sessions-token.ts';
import type { Saying } from './plan.ts';
import type { Holding, Said, World } from './world.ts';

/** What is said now, and remembered for who says it again. */
export function saying(world: World, holding: Holding, { again, ...said }: Saying): Said {
  if (!again || holding.said === undefined) holding.said = fresh(world, said);
  return holding.said;
}

/** Each result and each error is one of its own: what is kept tells whose it is. */
export function fresh(world: World, { status, hasResult, isFinal }: Omit<Saying, 'again'>): Said {
  const isFailed = status === 'failed';
  const text = `${status} ${world.next()}`;
  return {
    status,
    result: hasResult && !isFailed ? text : undefined,
    error: hasResult && isFailed ? text : undefined,
    isFinal: isFinal && isFailed,
  };
}

export const turned = (status: Saying['status']): Saying['status'] => (status === 'failed' ? 'succeeded' : 'failed');

/** Who was never handed it has no token, and asks as an operator. */
export const handOutOf = ({ id, sessionsToken }: Holding, isOperator: boolean) => ({
  id,
  tokenHash: isOperator || sessionsToken === undefined ? null : (parseSessionsToken(sessionsToken)?.hash ?? null),
});
