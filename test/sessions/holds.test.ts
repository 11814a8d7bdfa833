import t from 'tap';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import {
  INTERRUPT,
  itemsOf,
  MESSAGE,
  type RelayPlace,
  relayPlace,
  result,
  sessionRow,
  TOOL,
} from '../support/sessions.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: { maxHandOuts: 1 } });
    const { call, database, queue } = server;
    const operator = { as: OPERATOR_KEY };
    const cancel = (place: RelayPlace, id: string) =>
      call('POST', `/control/v1/environments/${place.environmentId}/work/cancel`, {
        ...operator,
        body: { data: { type: 'session', id } },
      });

    /** How somebody decided that it is not to go on by itself. */
    const DECISIONS: Readonly<Record<string, (place: RelayPlace, id: string, workId: string) => Promise<unknown>>> = {
      'an operator stops it': (place, _, workId) => place.stop(workId, operator),
      'an operator lets it wind down': (place, _, workId) =>
        place.stop(workId, { ...operator, body: { force: false } }),
      'an operator lets it wind down, and its worker ends it': async (place, _, workId) => {
        await place.stop(workId, { ...operator, body: { force: false } });
        await place.stop(workId);
      },
      'an operator lets wind down what nobody holds any more, and a poll finds it': async (place, _, workId) => {
        await lapse(database, workId);
        await place.stop(workId, { ...operator, body: { force: false } });
        await place.poll();
      },
      'an operator stops it as it waits': async (place, id) => {
        await place.stop((await itemsOf(database, id)).at(-1)?.id ?? '', operator);
      },
      'the session is cancelled': (place, id) => cancel(place, id),
      'it was handed out as often as it may be': async (_, __, workId) => {
        await lapse(database, workId, 60);
        await queue.sweep();
      },
    };

    for (const [what, decide] of Object.entries(DECISIONS)) {
      t.test(`${what}: nobody is sent until somebody asks`, async (t) => {
        const place = await relayPlace(server);
        const [id, neighbour] = [await place.session(), await place.session()];
        const tool = await place.tool(id);
        await place.append(id, TOOL);
        const { id: workId } = await place.work();
        await place.append(neighbour, TOOL);
        const { id: nextId } = await place.work();
        await decide(place, id, workId);
        await place.stop(nextId);
        for (let pass = 0; pass < 3; pass++) await queue.sweep();
        t.match(await itemsOf(database, id), [{ id: workId, state: /stop/ }]);
        t.equal((await itemsOf(database, id)).length, 1);
        t.match(await sessionRow(database, id), { is_held: true, needs_worker: true, arm_count: 0 });
        t.match(
          await itemsOf(database, neighbour),
          [{ state: 'stopped' }, { state: 'queued' }],
          'its neighbour goes on',
        );
        t.equal((await place.answer(id, result(tool))).status, 200);
        await queue.sweep();
        t.equal((await itemsOf(database, id)).length, 1, 'a late result does not undo it');

        await place.append(id, what.includes('operator') ? MESSAGE : INTERRUPT);
        t.match((await itemsOf(database, id)).at(-1), { state: 'queued', not_before: null });
        t.match(await sessionRow(database, id), { is_held: false });
        const again = (await itemsOf(database, id)).at(-1)?.id ?? '';
        while ((await place.poll())?.id !== again);
        await place.stop(again);
        await queue.sweep();
        t.equal((await itemsOf(database, id)).length, 3, 'and goes on as if nothing had been');
      });
    }
  });
}
