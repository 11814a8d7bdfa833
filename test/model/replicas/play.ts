import { ask, askSet, type How } from './ask.ts';
import { type Asked, bodyOf, type Call, listOf, sessionOf } from './calls.ts';
import { crash, cross, hold, kill, lapse, slow } from './faults.ts';
import type { Burst, Fault, Of, Step, TokenChoice, Which } from './plan.ts';
import type { Holding, World } from './world.ts';

/** One burst: its lanes run at the same time. Then what was committed is read. */
export async function playBurst(world: World, burst: Burst): Promise<void> {
  await Promise.all(
    burst.map(async (lane) => {
      for (const step of lane) await play(world, step);
    }),
  );
  await world.log.read(world.clock);
}

async function play(world: World, step: Step): Promise<void> {
  switch (step.do) {
    case 'enqueue':
      return void (await enqueue(world, step));
    case 'work':
      return work(world, step);
    case 'ack':
    case 'beat':
    case 'stop':
      return many(world, step);
    case 'patch':
      return patch(world, step);
    case 'read':
      return read(world, step);
    case 'set':
      return playSet(world, step);
    case 'cancel':
      return void (await ask(world, world.replicas[step.to], { verb: 'cancel', session: step.session }));
    case 'sweep':
      return sweep(world, step.to);
    case 'lapse':
      return lapse(world, step);
    case 'hold':
      return hold(world, step);
    case 'slow':
      return slow(world, step);
    case 'crash':
      return crash(world, step);
    case 'kill':
      return kill(world, step);
    case 'cross':
      return cross(world, step);
  }
}

type Try = (to: Which, isAgain: boolean, how: How) => Promise<Call>;

/** What the client heard. What it did not hear of it asks for again, as the official ones do; at most once. */
async function insist(world: World, to: Which, fault: Fault, attempt: Try): Promise<Call> {
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
async function work(world: World, step: Of<'work'>): Promise<void> {
  const { to, blockMs, leavesAfterTurns, faults, force, asItem, slow } = step;
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
    () => ({ verb: 'stop', id, force, reason: 'worker' }),
  ];
  for (const [index, fault] of faults.entries()) {
    const call = await insist(world, to, fault, (which, isAgain, how) => {
      const asked = asks[index]?.(isAgain) ?? { verb: 'read', id };
      return ask(world, world.replicas[which], asked, { ...how, sessionsToken });
    });
    hear(holding, call);
  }
}

/** The holder goes on with the token that it was told. */
function hear(holding: Holding, call: Call): void {
  const token = bodyOf(call)?.last_heartbeat;
  if (call.verb !== 'beat' || typeof token !== 'string' || token === holding.token) return;
  holding.replaced = call.expected;
  holding.token = token;
}

const FORGED = '2020-01-01T00:00:00.000001Z';

function tokenOf({ token, replaced }: Holding, choice: TokenChoice): string {
  if (choice === 'forged') return FORGED;
  if (choice === 'current') return token ?? 'NO_HEARTBEAT';
  return choice === 'replaced' ? (replaced ?? 'NO_HEARTBEAT') : choice;
}

async function many(world: World, step: Of<'ack'> | Of<'beat'> | Of<'stop'>): Promise<void> {
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

const other = (which: Which): Which => (which === 0 ? 1 : 0);

async function patch(world: World, { session, before, to, copies, apart }: Of<'patch'>): Promise<void> {
  const id = world.holdingOf(session, before)?.id;
  if (id === undefined) return;
  const one = (copy: number) => {
    const n = world.next();
    const replica = world.replicas[apart && copy % 2 === 1 ? other(to) : to];
    return ask(world, replica, { verb: 'patch', id, key: `k${n % 6}`, value: `${n}` });
  };
  await Promise.all(Array.from({ length: copies }, (_, copy) => one(copy)));
}

async function read(world: World, { session, before, to }: Of<'read'>): Promise<void> {
  const id = world.holdingOf(session, before)?.id;
  if (id !== undefined) await ask(world, world.replicas[to], { verb: 'read', id });
}

async function playSet(world: World, { to, verb, targets }: Of<'set'>): Promise<void> {
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

async function sweep(world: World, to: Which): Promise<void> {
  const { name, queue } = world.replicas[to];
  await queue.sweep().catch((error: unknown) => {
    if (!world.broken.has(name)) throw error;
  });
}
