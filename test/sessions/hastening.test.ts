import { sql } from 'kysely';
import t from 'tap';
import { appendEvents } from '../../src/sessions/append.ts';
import type { SentEvent } from '../../src/sessions/events.ts';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import {
  ASKED,
  CUSTOM,
  DENIED,
  INTERRUPT,
  itemsOf,
  MESSAGE,
  relayPlace,
  result,
  SAID,
  sessionRow,
  TOOL,
} from '../support/sessions.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database, queue } = server;

    t.test('what waits is hastened, a hold ends and losses are forgotten by whatever ends it', async (t) => {
      const { sessions, workItems } = database.names;
      for (const [what, event, hastens, unholds, forgets] of [
        ['a message', MESSAGE, true, true, true],
        ['an interrupt', INTERRUPT, true, true, true],
        ['a call', TOOL, false, true, true],
        ['a call that is asked for', ASKED, false, false, false],
        ['a word', SAID, false, false, false],
        ['a custom call', CUSTOM, false, false, false],
      ] as const) {
        const place = await relayPlace(server);
        const [id, neighbour] = [await place.session(), await place.session()];
        for (const at of [id, neighbour]) {
          if (event === TOOL || event === MESSAGE || event === INTERRUPT) await place.append(at, TOOL);
          else await queue.enqueue({ environmentId: place.environmentId, sessionId: at });
        }
        await database.rows(
          sql`update ${workItems} set not_before = clock_timestamp() + interval '1 hour' where environment_id = ${place.environmentId}`,
        );
        await database.rows(
          sql`update ${sessions} set is_held = true, arm_count = 5 where environment_id = ${place.environmentId}`,
        );
        const polled = hastens
          ? call('GET', `/v1/environments/${place.environmentId}/work/poll?block_ms=999`, { as: place.key })
          : undefined;
        await place.append(id, event);
        const [item] = await itemsOf(database, id);
        t.equal(item?.not_before === null, hastens, `${what}: hastened`);
        t.match(await sessionRow(database, id), { is_held: !unholds, arm_count: forgets ? 0 : 5 }, what);
        t.match(await itemsOf(database, neighbour), [{ not_before: String }], 'its neighbour waits on');
        t.match(await sessionRow(database, neighbour), { is_held: true, arm_count: 5 });
        if (polled !== undefined) t.match((await polled).json, { data: { id } }, 'and whoever polls is told');
      }
    });

    t.test('what is free already is not announced once more', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const append = () => appendEvents(database, id, [MESSAGE as SentEvent], 'agent');
      t.match(await append(), { offered: [{ sessionId: id }] });
      t.strictSame((await append()).offered, []);
    });

    t.test('what a worker has already is not put back by a message', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      await place.append(id, TOOL);
      const { id: workId } = await place.work();
      const { workItems } = database.names;
      await database.rows(
        sql`update ${workItems} set not_before = clock_timestamp() - interval '1 hour' where id = ${workId}`,
      );
      const before = await itemsOf(database, id);
      await place.append(id, MESSAGE);
      t.strictSame(await itemsOf(database, id), before);
      t.equal(await place.poll(), null);
    });

    t.test('a result arms nobody', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const [tool] = [await place.tool(id), await place.tool(id)];
      const { id: workId } = await place.work();
      await place.stop(workId);
      await place.answer(id, result(tool));
      t.match(await itemsOf(database, id), [{ state: 'stopped' }]);
      t.equal((await itemsOf(database, id)).length, 1);
      t.equal((await call('GET', `/v1/sessions/${id}`, { as: OPERATOR_KEY })).json.status, 'idle');
    });

    t.test('only a call that a worker may run ends a hold', async (t) => {
      for (const [event, isHeld] of [
        [ASKED, true],
        [DENIED, true],
        [CUSTOM, true],
        [SAID, true],
        [TOOL, false],
      ] as const) {
        const place = await relayPlace(server);
        const id = await place.session();
        await place.append(id, TOOL);
        await place.stop((await place.work()).id, { as: OPERATOR_KEY });
        await queue.sweep();
        t.match(await sessionRow(database, id), { is_held: true, needs_worker: true });
        await place.append(id, event);
        await queue.sweep();
        const what = JSON.stringify(event);
        t.match(await sessionRow(database, id), { is_held: isHeld }, what);
        t.equal((await itemsOf(database, id)).length, isHeld ? 1 : 2, what);
      }
    });
  });
}
