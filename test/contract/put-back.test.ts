import t from 'tap';
import { changeSettings } from '../../src/control/settings.ts';
import { ENGINES, lapse, testServer } from '../support/harness.ts';
import { newPlace } from '../support/places.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database, queue } = server;

    for (const [how, unseen, state] of [
      ['that nobody saw is not the last one: the sweep leaves its item to the polls', true, 'queued'],
      ['that was given back is: the sweep sets its item aside', false, 'stopped'],
    ] as const) {
      t.test(`the hand-out by which the cap was reached, ${how}`, async (t) => {
        const { environment, enqueue } = await newPlace(server);
        const environmentId = environment.id;
        const cap = (maxHandOuts: number) => changeSettings(database, environmentId, { maxHandOuts }, queue.settings);
        await enqueue();
        await cap(2);
        const first = await queue.poll({ environmentId });
        if (first === null) throw new Error('nothing was handed out');
        await lapse(database, first.item.id, 1);
        const second = await queue.poll({ environmentId });
        if (second === null) throw new Error('nothing was handed out again');
        t.equal(await queue.putBack(second, unseen), true);
        await cap(1);
        await queue.sweep();
        const { id } = second.item;
        t.equal((await queue.retrieve({ environmentId, id })).state, state);
        t.equal(await queue.poll({ environmentId }), null);
        t.equal(
          (await queue.retrieve({ environmentId, id })).state,
          'stopped',
          'the poll sets it aside in either case',
        );
      });
    }
  });
}
