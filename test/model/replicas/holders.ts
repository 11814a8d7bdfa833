import { ask, askSet } from './ask.ts';
import type { Asked, Call } from './calls.ts';
import { hear, insist } from './clients.ts';
import type { Of, TokenChoice, Which } from './plan.ts';
import type { Replica } from './replica.ts';
import type { Holding, World } from './world.ts';

const FORGED = '2020-01-01T00:00:00.000001Z';

function tokenOf({ token, replaced }: Holding, choice: TokenChoice): string {
  if (choice === 'forged') return FORGED;
  if (choice === 'current') return token ?? 'NO_HEARTBEAT';
  return choice === 'replaced' ? (replaced ?? 'NO_HEARTBEAT') : choice;
}

export async function many(world: World, step: Of<'ack'> | Of<'beat'> | Of<'stop'>): Promise<void> {
  const holding = world.holdingOf(step.session, step.before);
  if (holding === undefined) return;
  const { to, copies, apart, fault } = step;
  const sessionsToken = step.asItem ? holding.sessionsToken : undefined;
  if (copies > 1) world.meet(apart ? 'the same at both replicas at once' : 'the same twice in a batch');
  const { id } = holding;
  const expected = step.do === 'beat' ? tokenOf(holding, step.token) : '';
  const one = async (copy: number) => {
    const call = await insist(world, apart && copy % 2 === 1 ? other(to) : to, fault, (which, isAgain, how) => {
      const asked: Asked =
        step.do === 'ack'
          ? { verb: 'ack', id }
          : step.do === 'stop'
            ? { verb: 'stop', id, force: step.force, reason: step.isOperator ? 'operator' : 'worker' }
            : { verb: 'beat', id, expected, isRetry: step.isRetry || isAgain };
      return ask(world, world.replicas[which], asked, { ...how, sessionsToken });
    });
    hear(holding, call);
  };
  await Promise.all(Array.from({ length: copies }, (_, copy) => one(copy)));
}

export const other = (which: Which): Which => (which === 0 ? 1 : 0);

export async function patch(world: World, { session, before, to, copies, apart }: Of<'patch'>): Promise<void> {
  const id = world.holdingOf(session, before)?.id;
  if (id === undefined) return;
  await atOnce(world, { to, copies, apart }, (replica) => {
    const n = world.next();
    return ask(world, replica, { verb: 'patch', id, key: `k${n % 6}`, value: `${n}` });
  });
}

export async function cancel(world: World, { session, ...where }: Of<'cancel'>): Promise<void> {
  await atOnce(world, where, (replica) => ask(world, replica, { verb: 'cancel', session }));
}

type Where = Pick<Of<'cancel'>, 'to' | 'copies' | 'apart'>;

const atOnce = (world: World, { to, copies, apart }: Where, one: (replica: Replica) => Promise<Call>) =>
  Promise.all(
    Array.from({ length: copies }, (_, copy) => one(world.replicas[apart && copy % 2 === 1 ? other(to) : to])),
  );

export async function read(world: World, { do: verb, session, before, to }: Of<'read' | 'result'>): Promise<void> {
  const id = world.holdingOf(session, before)?.id;
  if (id !== undefined) await ask(world, world.replicas[to], { verb, id });
}

export async function playSet(world: World, { to, verb, targets }: Of<'set'>): Promise<void> {
  const known = targets.flatMap(({ session, before }) => world.holdingOf(session, before) ?? []);
  if (known.length === 0) return;
  world.meet(`${verb}: a set`);
  const set = known.map((holding) => {
    const { id } = holding;
    if (verb === 'ack') return { verb, id } as const;
    if (verb === 'stop') return { verb, id, force: false, reason: 'worker' } as const;
    return { verb, id, expected: tokenOf(holding, 'current'), isRetry: false } as const;
  });
  const calls = await askSet(world, world.replicas[to], set);
  for (const [index, holding] of known.entries()) {
    const call = calls[index];
    if (call !== undefined) hear(holding, call);
  }
}
