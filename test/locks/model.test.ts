import fc from 'fast-check';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { acquireLock } from '../../src/locks/acquire.ts';
import { listLocks } from '../../src/locks/list.ts';
import { pruneLocks } from '../../src/locks/prune.ts';
import { releaseLock } from '../../src/locks/release.ts';
import { renewLock } from '../../src/locks/renew.ts';
import { testDatabase } from '../support/harness.ts';
import { expireLock } from '../support/locks.ts';

type Step =
  | { readonly verb: 'acquire' | 'renew' | 'release'; readonly owner: number; readonly name: string }
  | { readonly verb: 'expire' | 'prune'; readonly name: string };

const NAMES = ['a', 'b'];
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    verb: fc.constantFrom('acquire', 'acquire', 'renew', 'release'),
    owner: fc.integer({ min: 0, max: 2 }),
    name: fc.constantFrom(...NAMES),
  }),
  fc.record({ verb: fc.constantFrom('expire', 'prune'), name: fc.constantFrom(...NAMES) }),
);

/** What holds, said plainly: who holds which name, and the last token that each owner was given for it. */
type Model = Map<string, { holder?: { owner: number; token: number }; tokens: Map<number, number> }>;

/** A token that no lock has: 1 is the first lock's. */
const NOBODYS = 2 ** 40;

const database = await testDatabase(t);
let environments = 0;

async function play(steps: readonly Step[]): Promise<void> {
  const { id } = await createEnvironment(database, { name: `model ${environments++}`, type: 'self_hosted' });
  const model: Model = new Map(NAMES.map((name) => [name, { tokens: new Map() }]));
  let highest = 0;
  for (const taken of steps) {
    const { verb, name } = taken;
    const place = model.get(name);
    if (place === undefined) throw new Error('no such name');
    const ref = { environmentId: id, name };
    if (!('owner' in taken)) {
      // An hour and a bit: what is expired may also be removed.
      await expireLock(database, ref, 3_700);
      if (verb === 'prune') await pruneLocks(database);
      delete place.holder;
    } else {
      const token = place.tokens.get(taken.owner) ?? NOBODYS;
      const isHolder = place.holder?.owner === taken.owner && place.holder.token === token;
      if (verb === 'acquire') {
        const lock = await acquireLock(database, { ...ref, owner: `${taken.owner}` }).catch(() => undefined);
        if (place.holder === undefined) {
          if (lock === undefined || lock.token <= highest)
            throw new Error('a free lock is taken, under a higher token');
          highest = lock.token;
          place.holder = { owner: taken.owner, token: lock.token };
          place.tokens.set(taken.owner, lock.token);
        } else if ((lock !== undefined) !== isHolder || (lock !== undefined && lock.token !== place.holder.token)) {
          throw new Error('a lock that is held is its owner’s, under its token');
        }
      } else if (verb === 'renew') {
        const renewed = await renewLock(database, { ...ref, token }).then(
          () => true,
          () => false,
        );
        if (renewed !== isHolder) throw new Error(`renewed: ${renewed}, holder: ${isHolder}`);
      } else {
        const released = await releaseLock(database, { ...ref, token });
        if (released !== isHolder) throw new Error(`released: ${released}, holder: ${isHolder}`);
        if (released) delete place.holder;
      }
    }
    const listed = (await listLocks(database, id)).items.map((lock) => `${lock.name} ${lock.owner} ${lock.token}`);
    const held = [...model].flatMap(([key, { holder }]) =>
      holder === undefined ? [] : [`${key} ${holder.owner} ${holder.token}`],
    );
    if (listed.sort().join() !== held.sort().join()) throw new Error(`${listed} is held, not ${held}`);
  }
}

t.test(
  'whatever three owners ask, in whatever order, a lock is one owner’s at a time and tokens only grow',
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), (steps) => play(steps)),
      { numRuns: 60 },
    );
  },
);
