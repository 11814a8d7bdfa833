import { ask, type How } from './ask.ts';
import { type Asked, bodyOf, type Call, listOf, sessionOf } from './calls.ts';
import type { Fault, Of, Which } from './plan.ts';
import { handOutOf, saying } from './said.ts';
import type { Holding, World } from './world.ts';

type Try = (to: Which, isAgain: boolean, how: How) => Promise<Call>;

/** What the client heard. What it did not hear of it asks for again, as the official ones do; at most once. */
export async function insist(world: World, to: Which, fault: Fault, attempt: Try): Promise<Call> {
  const leavesAfterTurns = fault.what === 'left' ? fault.turns : undefined;
  const call = await attempt(to, false, { leavesAfterTurns });
  const isHeard = fault.what === 'none' && call.outcome.kind === 'answered';
  if (isHeard) return call;
  if (fault.what !== 'none') world.meet(`${call.verb}: the answer is ${fault.what}`);
  return attempt(fault.what === 'none' ? to : fault.again, true, {});
}

export async function enqueue(world: World, { to, requests, fault }: Of<'enqueue'>): Promise<Call> {
  const call = await insist(world, to, fault, (which, _, how) =>
    ask(world, world.replicas[which], { verb: 'enqueue', requests }, how),
  );
  const body = bodyOf(call);
  const works = listOf(body)?.map((one) => one.work) ?? [body];
  for (const [index, { session }] of requests.entries()) {
    const id = works[index]?.id;
    if (id !== undefined) world.learn(session, id);
  }
  return call;
}

export async function poll(world: World, to: Which, blockMs?: number, how: How = {}): Promise<Holding | undefined> {
  const replica = world.replicas[to];
  const call = await ask(world, replica, { verb: 'poll', workerId: `worker ${world.next()}`, blockMs }, how);
  const work = bodyOf(call);
  const session = sessionOf(work);
  if (!work?.id || !work.secret || !isSession(session)) return undefined;
  const { sessions_token: token } = JSON.parse(Buffer.from(work.secret, 'base64url').toString());
  return world.learn(session, work.id, token);
}

const isSession = (text: string | undefined) => text === 's1' || text === 's2' || text === 's3';

/** As the official worker does it. */
export async function work(world: World, step: Of<'work'>): Promise<void> {
  const { to, blockMs, leavesAfterTurns, faults, asItem, slow } = step;
  if (leavesAfterTurns !== undefined)
    world.meet(
      `poll: the client leaves${slow === undefined ? '' : `, the answer is slow ${slow === 'before' ? 'before' : 'after'} its first byte`}`,
    );
  const holding = await poll(world, to, blockMs, { leavesAfterTurns, slow });
  if (holding === undefined) return;
  const { id } = holding;
  const sessionsToken = asItem ? holding.sessionsToken : undefined;
  const asks: ((isAgain: boolean) => Asked)[] = [
    () => ({ verb: 'ack', id }),
    (isRetry) => ({ verb: 'beat', id, expected: holding.token ?? 'NO_HEARTBEAT', isRetry }),
    (isRetry) => ({ verb: 'beat', id, expected: holding.token ?? 'NO_HEARTBEAT', isRetry }),
    (isAgain) => endOf(world, holding, step, isAgain),
  ];
  for (const [index, fault] of faults.entries()) {
    const call = await insist(world, to, fault, (which, isAgain, how) => {
      const asked = asks[index]?.(isAgain) ?? { verb: 'read', id };
      const isHolders = asked.verb === 'release' || asked.verb === 'report';
      return ask(world, world.replicas[which], asked, {
        ...how,
        sessionsToken: isHolders ? holding.sessionsToken : sessionsToken,
      });
    });
    hear(holding, call);
  }
}

function endOf(world: World, holding: Holding, { end, force }: Of<'work'>, isAgain: boolean): Asked {
  if (end === 'stop') return { verb: 'stop', id: holding.id, force, reason: 'worker' };
  const handOut = handOutOf(holding, false);
  if (end === 'release') return { verb: 'release', ...handOut, delayMs: 0 };
  const said = saying(world, holding, { status: end, hasResult: true, isFinal: force, again: isAgain });
  return { verb: 'report', ...handOut, ...said };
}

/** The holder goes on with the token that it was told. */
export function hear(holding: Holding, call: Call): void {
  const token = bodyOf(call)?.last_heartbeat;
  if (call.verb !== 'beat' || typeof token !== 'string' || token === holding.token) return;
  holding.replaced = call.expected;
  holding.token = token;
}
