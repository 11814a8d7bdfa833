import { sql } from 'kysely';
import t from 'tap';
import { ENGINES, lapse, type Server, testServer } from '../support/harness.ts';
import { lose, losing } from '../support/losing.ts';
import {
  CUSTOM,
  customResult,
  INTERRUPT,
  itemsOf,
  MESSAGE,
  type RelayPlace,
  relayPlace,
  result,
  sessionRow,
  TOOL,
} from '../support/sessions.ts';

/** Until its last item may be handed out, in seconds; null: at once. */
async function delayOf({ database }: Server, id: string): Promise<number | null> {
  const { workItems } = database.names;
  const [row] = await database.rows(sql<{ seconds: number | null }>`
    select extract(epoch from not_before - created_at)::float8 as seconds from ${workItems} where session_id = ${id}
    order by seq desc limit 1`);
  return row?.seconds ?? null;
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database, queue } = server;
    const isAbout = (t: Tap, actual: number | null, seconds: number) =>
      t.ok(actual !== null && Math.abs(actual - seconds) < 0.5, `${seconds} s, was ${actual}`);

    t.test(
      'a worker that stops without a result is followed by another, later each time, and in the end by none',
      async (t) => {
        const place = await relayPlace(server);
        const { id, calls } = await losing(server, place, 0);
        const neighbour = await place.session();
        for (const [index, seconds] of [1, 2, 4, 8, 16, 32, 60, 60, 60, 60].entries()) {
          await lose(server, place);
          const before = await place.events(id);
          await queue.sweep();
          t.equal((await itemsOf(database, id)).length, index + 2, 'one more');
          isAbout(t, await delayOf(server, id), seconds);
          t.match(await sessionRow(database, id), { arm_count: index + 1, is_held: false });
          t.strictSame(await place.events(id), before, 'which is no event');
          t.equal(await place.poll(), null, 'not before its time');
          await queue.sweep();
          t.equal((await itemsOf(database, id)).length, index + 2, 'once');
        }
        await lose(server, place);
        await queue.sweep();
        t.match((await place.events(id)).at(-1), {
          type: 'session.status_idle',
          stop_reason: { type: 'retries_exhausted' },
          stop_details: null,
        });
        t.match(await sessionRow(database, id), { status: 'idle', is_held: true, needs_worker: true });
        const count = (await place.events(id)).length;
        await queue.sweep();
        t.equal((await itemsOf(database, id)).length, 11, 'and is left alone');
        t.equal((await place.events(id)).length, count, 'told once');
        const late = await place.answer(id, result(calls[0] ?? ''));
        t.equal(late.status, 200, 'a late result still counts');
        t.strictSame(await itemsOf(database, neighbour), []);
      },
    );

    t.test('what its worker set aside for good is not sent for again by itself', async (t) => {
      const place = await relayPlace(server);
      const { id } = await losing(server, place, 0);
      const [item] = await itemsOf(database, id);
      const polled = await queue.poll({ environmentId: place.environmentId });
      if (polled === null || item === undefined) throw new Error('it is polled');
      await queue.reportOutcome(polled, { status: 'failed', isFinal: true });
      await queue.sweep();
      t.equal((await itemsOf(database, id)).length, 1);
      t.match(await sessionRow(database, id), { is_held: true });
    });

    t.test('losses are forgotten where something moved, and only there', async (t) => {
      for (const [what, move, seconds] of [
        [
          'a result of a worker',
          async (place: RelayPlace, id: string, [call]: string[]) => place.answer(id, result(call ?? '')),
          1,
        ],
        ['a message', async (place: RelayPlace, id: string) => place.append(id, MESSAGE), 1],
        ['an interrupt', async (place: RelayPlace, id: string) => place.append(id, INTERRUPT), 1],
        ['a call', async (place: RelayPlace, id: string) => place.append(id, TOOL), 16],
        [
          "an agent's own result",
          async (place: RelayPlace, id: string, calls: string[]) => place.append(id, customResult(calls[2] ?? '')),
          16,
        ],
        [
          'a repeat',
          async (place: RelayPlace, id: string, calls: string[]) => place.answer(id, result(calls[3] ?? '')),
          16,
        ],
      ] as const) {
        const place = await relayPlace(server);
        const { id, calls } = await losing(server, place, 0, TOOL, TOOL, CUSTOM, TOOL);
        await place.answer(id, result(calls[3] ?? ''));
        const { sessions } = database.names;
        await database.rows(sql`update ${sessions} set arm_count = 4 where id = ${id}`);
        await move(place, id, calls);
        await lose(server, place);
        await queue.sweep();
        t.comment(what);
        isAbout(t, await delayOf(server, id), seconds);
      }
    });

    t.test('a late result of a session that was given up has workers sent for again', async (t) => {
      const place = await relayPlace(server);
      const { id, calls } = await losing(server, place, 10);
      await lose(server, place);
      await queue.sweep();
      t.match(await sessionRow(database, id), { is_held: true, arm_count: 10 });
      await place.answer(id, result(calls[0] ?? ''));
      t.match((await place.events(id)).at(-1), { stop_reason: { type: 'requires_action', event_ids: [calls[1]] } });
      await queue.sweep();
      t.match(
        await itemsOf(database, id),
        [{ state: 'stopped' }, { state: 'queued' }],
        'the other call is not left alone',
      );
      isAbout(t, await delayOf(server, id), 1);
    });

    t.test('a worker that is lost is followed by whoever polls next, in the same item', async (t) => {
      const place = await relayPlace(server);
      const { id } = await losing(server, place, 0);
      const { id: workId } = await place.work();
      await lapse(database, workId, 60);
      await queue.sweep();
      await queue.sweep();
      t.match(await itemsOf(database, id), [{ state: 'queued', not_before: null }]);
      t.equal((await itemsOf(database, id)).length, 1);
      t.match(await sessionRow(database, id), { arm_count: 0 });
    });

    t.test('a worker that winds down is followed, too', async (t) => {
      const place = await relayPlace(server);
      const { id } = await losing(server, place, 0);
      const { id: workId } = await place.work();
      await place.stop(workId, { body: { force: false } });
      await queue.sweep();
      t.match(await itemsOf(database, id), [{ state: 'stopping' }, { state: 'queued' }]);
      await lapse(database, workId);
      await queue.sweep();
      t.match(await itemsOf(database, id), [{ stop_reason: 'abandoned' }, { state: 'queued' }]);
      t.match(await sessionRow(database, id), { is_held: false });
    });
  });
}

type Tap = { ok(value: unknown, message: string): boolean };
