import { ask } from './ask.ts';
import { type Asked, bodyOf } from './calls.ts';
import { insist } from './clients.ts';
import { other } from './holders.ts';
import { LOCKS, type Of } from './plan.ts';
import type { World } from './world.ts';

/** An owner takes a lock, or renews it or lets it go by a token that it was told. */
export async function lock(world: World, step: Of<'lock'>): Promise<void> {
  const { verb, name, owner, ttlSeconds, before, to, copies, apart, fault } = step;
  const known = world.tokens.get(`${name} ${owner}`) ?? [];
  const token = known.at(before ? -2 : -1) ?? known.at(-1);
  const asked = askedOf();
  if (asked === undefined) return;
  const one = async (copy: number) => {
    const call = await insist(world, apart && copy % 2 === 1 ? other(to) : to, fault, (which, _, how) =>
      ask(world, world.replicas[which], asked, how),
    );
    const told = bodyOf(call)?.token;
    if (told === undefined || known.includes(told)) return;
    known.push(told);
    world.tokens.set(`${name} ${owner}`, known);
  };
  await Promise.all(Array.from({ length: copies }, (_, copy) => one(copy)));

  function askedOf(): Asked | undefined {
    if (verb === 'acquire') return { verb, lock: name, owner, ttlSeconds };
    if (token === undefined) return undefined;
    return verb === 'renew' ? { verb, lock: name, token, ttlSeconds } : { verb, lock: name, token };
  }
}

/** Tests move rows, not clocks. */
export async function expire({ pool, place }: World, { name }: Of<'expire'>): Promise<void> {
  await pool.query(
    `update ${place.schema}.locks set expires_at = clock_timestamp() - interval '1 second'
    where name = $1 and expires_at > clock_timestamp()`,
    [name],
  );
}

/** The end of a history: whatever was held has expired, and whoever comes next gets it. */
export async function takeLocks(world: World): Promise<void> {
  for (const name of LOCKS) await expire(world, { do: 'expire', to: 0, name });
  await world.log.read(world.clock);
  for (const [index, name] of LOCKS.entries()) {
    const asked = { verb: 'acquire', lock: name, owner: 'the last', ttlSeconds: 60 } as const;
    await ask(world, world.replicas[index === 0 ? 0 : 1], asked);
  }
}
