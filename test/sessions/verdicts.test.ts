import t from 'tap';
import { ENGINES, testServer } from '../support/harness.ts';
import {
  ASKED,
  DENIED,
  everything,
  itemsOf,
  relayPlace,
  result,
  sessionRow,
  TOOL,
  verdict,
} from '../support/sessions.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database } = server;

    t.test('a verdict is given once: it may be repeated, and a no may still follow a yes', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const asked = await place.tool(id, ASKED);
      const allowed = (await place.append(id, verdict(asked, 'allow')))[0];
      const before = await everything(database);
      t.strictSame(await place.append(id, { ...verdict(asked, 'allow'), deny_message: 'x' }), [allowed]);
      t.equal(await everything(database), before);
      const [denied, again] = await place.append(id, verdict(asked, 'deny'), verdict(asked, 'deny'));
      t.strictSame(again, denied);
      t.strictSame(
        await place.append(id, verdict(asked, 'allow')),
        [allowed],
        'what was said before is repeated, and changes nothing',
      );
      t.match(await sessionRow(database, id), { open_calls: '[]', status: 'running' });
      t.equal((await place.answer(id, result(asked))).status, 400, 'never run');
      const both = await place.session();
      const call = await place.tool(both, ASKED);
      t.equal((await place.append(both, verdict(call, 'allow'), verdict(call, 'deny'))).length, 2);
      t.match(await sessionRow(database, both), { open_calls: '[]', needs_worker: false });
      t.equal((await place.answer(both, result(call))).status, 400);
    });

    t.test('a call that was denied as it was made, or before it was allowed, has no worker', async (t) => {
      const place = await relayPlace(server);
      for (const make of [
        async (id: string) => void (await place.tool(id, DENIED)),
        async (id: string) => void (await place.append(id, verdict(await place.tool(id, ASKED), 'deny'))),
      ]) {
        const id = await place.session();
        await make(id);
        t.match(await sessionRow(database, id), { open_calls: '[]', needs_worker: false, status: 'running' });
        await server.queue.sweep();
        t.strictSame(await itemsOf(database, id), []);
      }
      const open = await place.session();
      await place.append(open, verdict(await place.tool(open, TOOL), 'deny'));
      await place.work();
      t.match(await sessionRow(database, open), { needs_worker: false }, 'withdrawn while a worker runs it');
    });
  });
}
