import { sql } from 'kysely';
import t from 'tap';
import { poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { desk, type NewDesk, newDesk } from '../support/desk.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testDatabase } from '../support/harness.ts';
import { along, type RowName } from '../support/places.ts';
import { BLOCK_MS, waitingServer } from '../support/waiting.ts';

const TRACEPARENT = `00-${'c'.repeat(32)}-${'d'.repeat(16)}-01`;
/** All that a follow-up may bring; what it becomes must not be any of the first item's. */
const FIRST = { priority: 1, max_hand_outs: 1, metadata: { of: 'first' }, input: 'first', request_id: 'first' };
const FOLLOW_UP = {
  ...{ follow_up: true, priority: -7, max_hand_outs: 9, not_before: '2001-02-03T04:05:06.123456+02:00' },
  ...{ metadata: { of: 'next', text: '"\\é😀' }, input: { of: 'next', list: [null, '\\u0000"'] }, request_id: 'next' },
};
const TRACED = { headers: { traceparent: TRACEPARENT, tracestate: 'a=b' } };

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await waitingServer(t, { plain: await testDatabase(t, engine) });
    const { database, queue } = server;

    const sweep = () => queue.sweep();
    const ENDS: readonly [
      end: string,
      from: RowName,
      act: (d: NewDesk, id: string) => Promise<unknown>,
      state: string,
    ][] = [
      ['a stop of a queued one', 'queued, never handed out', (d, id) => d.stop(id), 'stopped'],
      ['a stop of a reserved one', 'queued, reservation live', (d, id) => d.stop(id), 'stopped'],
      ['a stop of a starting one', 'starting, lease live', (d, id) => d.stop(id), 'stopped'],
      ['a stop of an active one', 'active, lease live', (d, id) => d.stop(id), 'stopping'],
      ['a forced stop of an active one', 'active, lease live', (d, id) => d.forceStop(id), 'stopped'],
      ['a poll that finds it spent', 'active, lease lapsed', ({ poll }) => poll(), 'stopped'],
      ['a poll that finds it unacked and spent', 'queued, reservation lapsed', ({ poll }) => poll(), 'stopped'],
      [
        'a sweep that finds it spent',
        'starting, lease lapsed',
        (_, id) => lapse(database, id, 9).then(sweep),
        'stopped',
      ],
      [
        'a sweep that finds it unacked',
        'queued, reservation lapsed',
        (_, id) => lapse(database, id, 9).then(sweep),
        'stopped',
      ],
    ];

    for (const isArchived of [false, true]) {
      for (const [end, from, act, state] of ENDS) {
        t.test(
          `${end} enqueues its follow-up, once${isArchived ? ', also in an archived environment' : ''}`,
          async (t) => {
            const place = await newDesk(server);
            const { id } = (await place.enqueue('session', FIRST)).json;
            await along(place.place, { id, token: null }, from);
            const answer = await place.enqueue('session', FOLLOW_UP, TRACED);
            t.match(answer, { status: 200, json: { id, metadata: { of: 'first' } } });
            t.equal((await place.items()).length, 1, 'nothing yet');
            if (isArchived) await place.archive();
            await act(place, id);

            const [first, next, ...others] = await place.items();
            t.same(others, []);
            t.match(first, { id, state, input: '"first"' });
            t.match(next, { session: 'session', kind: 'tool_exec', input: JSON.stringify(FOLLOW_UP.input) });
            const row = await rowOf(database, next?.id ?? '');
            t.match(row, {
              ...{ lane: 'wire', priority: -7, max_hand_outs: 9, follow_up: null, requeued_from: null },
              ...{ not_before: /^2001-02-03T02:05:06.123456/, traceparent: TRACEPARENT, tracestate: 'a=b' },
            });
            t.same(row.metadata, FOLLOW_UP.metadata);
            t.match(
              await place.enqueue('session', { request_id: 'next' }),
              { status: 200, json: { id } },
              'as it was told',
            );

            t.equal((await place.forceStop(id)).status, state === 'stopping' ? 204 : 409);
            await lapse(database, id, 9);
            await place.poll('?reclaim_older_than_ms=60000');
            await queue.sweep();
            t.equal((await place.items()).length, 2, 'a later end adds none');
            t.match(await place.enqueue('session'), { status: 200, json: { id: next?.id } }, 'it has the slot');
          },
        );
      }
    }

    t.test('the first follow-up of an item stands, and its successor may have one of its own', async (t) => {
      const { enqueue, stop, items, get } = await newDesk(server);
      const { id } = (await enqueue('session', { follow_up: true, input: 1 })).json;
      t.match(await rowOf(database, id), { follow_up: null }, 'a new item is nobody’s follow-up');
      for (const input of [2, 3]) t.equal((await enqueue('session', { follow_up: true, input })).json.id, id);
      await stop(id);
      const next = (await get('')).json.data[0];
      t.match(next, { state: 'queued' });
      t.equal((await enqueue('session', { follow_up: true, input: 4 })).json.id, next.id);
      await stop(next.id);
      t.strictSame(
        (await items()).map(({ input, state }) => [input, state]),
        [
          ['1', 'stopped'],
          ['2', 'stopped'],
          ['4', 'queued'],
        ],
      );
    });

    t.test('a follow-up without input, metadata, trace or cap has none, whatever the first item had', async (t) => {
      const { enqueue, stop, items } = await newDesk(server);
      const { id } = (await enqueue('session', FIRST, TRACED)).json;
      await enqueue('session', { follow_up: true });
      await stop(id);
      const [, next] = await items();
      t.match(next, { input: null });
      const none = { not_before: null, max_hand_outs: null, traceparent: null, tracestate: null, priority: 0 };
      t.match(await rowOf(database, next?.id ?? ''), none);
    });

    t.test('an end followed by nothing enqueues nothing', async (t) => {
      const { enqueue, stop, items } = await newDesk(server);
      const { id } = (await enqueue('session')).json;
      const neighbour = (await enqueue('neighbour')).json;
      await enqueue('neighbour', { follow_up: true });
      await stop(id);
      t.strictSame(
        (await items()).map(({ id: other }) => other),
        [id, neighbour.id],
      );
    });

    t.test('details tell of a follow-up until it is enqueued', async (t) => {
      const place = await newDesk(server);
      const { id } = (await place.enqueue('session')).json;
      await along(place.place, { id, token: null }, 'active, lease live');
      const told = async () => {
        const path = `/control/v1/environments/${place.id}/work?session_id=session`;
        const { json } = await server.call('GET', path, { as: OPERATOR_KEY });
        return json.data.find((work: { id: string }) => work.id === id).follow_up;
      };
      t.equal(await told(), false);
      await place.enqueue('session', { follow_up: true });
      t.equal(await told(), true);
      await place.stop(id);
      t.equal(await told(), false, 'stopping');
      t.equal((await place.forceStop(id)).status, 204);
      t.equal(await told(), false, 'stopped');
    });

    for (const [end, act] of [
      ['a stop', async (id: string) => server.call('POST', server.work(`/${id}/stop`))],
      [
        'a sweep',
        async (id: string) => {
          await database.rows(sql`update ${database.names.workItems} set max_hand_outs = 1 where id = ${id}`);
          await lapse(database, id, 9);
          await queue.sweep();
        },
      ],
    ] as const) {
      t.test(`a waiting poll is woken by the successor of ${end}`, async (t) => {
        const { enqueue } = desk(server, server.environment.id);
        const { id } = (await enqueue(end)).json;
        await server.call('GET', server.work('/poll'));
        await server.call('POST', server.work(`/${id}/ack`));
        await enqueue(end, { follow_up: true });
        const { ended } = await server.wait(BLOCK_MS);
        await act(id);
        const { answer } = await ended; // it was woken: else it is answered null
        t.match(answer.json, { state: 'queued', data: { id: end } });
        await server.call('POST', server.work(`/${answer.json.id}/stop`));
      });
    }

    t.test('the poll that sets an item aside looks again, and hands out its successor', async (t) => {
      const place = await newDesk(server);
      const { id } = (await place.enqueue('session', { max_hand_outs: 1 })).json;
      await along(place.place, { id, token: null }, 'active, lease lapsed');
      await place.enqueue('session', { follow_up: true });
      t.match((await place.poll()).json, { data: { id: 'session' } });
      const [first, next] = await place.items();
      t.match([first, next], [{ id, reason: 'exhausted' }, { state: 'queued' }]);
      const taker = { workerId: null, reclaimOlderThanMs: null };
      const look = await poll(database, place.id, [taker], { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 });
      t.match(look, { handOuts: [null], setAside: 0 });
    });
  });
}
