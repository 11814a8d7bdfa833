import { ask } from './ask.ts';
import type { Asked, Call } from './calls.ts';
import { insist } from './clients.ts';
import { other } from './holders.ts';
import type { Of, Which } from './plan.ts';
import { fresh, handOutOf, saying, turned } from './said.ts';
import type { Holding, World } from './world.ts';

export async function release(world: World, step: Of<'release'>): Promise<void> {
  const { delayMs } = step;
  await atOnce(world, step, (holding) => ({ verb: 'release', ...handOutOf(holding, step.isOperator), delayMs }));
}

export async function report(world: World, step: Of<'report'>): Promise<void> {
  await atOnce(world, step, (holding, copy) => {
    const said =
      step.alike || copy === 0
        ? saying(world, holding, { ...step, again: step.again || copy > 0 })
        : fresh(world, { ...step, status: turned(step.status) });
    return { verb: 'report', ...handOutOf(holding, step.isOperator), ...said };
  });
}

async function atOnce(
  world: World,
  { session, before, to, copies, apart, fault }: Of<'release' | 'report'>,
  sayingOf: (holding: Holding, copy: number) => Asked,
): Promise<void> {
  const holding = world.holdingOf(session, before);
  if (holding === undefined) return;
  const { sessionsToken } = holding;
  const one = (copy: number): Promise<Call> => {
    const asked = sayingOf(holding, copy);
    const at: Which = apart && copy % 2 === 1 ? other(to) : to;
    return insist(world, at, fault, (which, _, how) =>
      ask(world, world.replicas[which], asked, { ...how, sessionsToken }),
    );
  };
  await Promise.all(Array.from({ length: copies }, (_, copy) => one(copy)));
}
