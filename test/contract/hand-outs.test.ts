import { sql } from 'kysely';
import t, { type Test } from 'tap';
import {
  type CallOptions,
  ENGINES,
  lapse,
  OPERATOR_KEY,
  rowOf,
  type Server,
  testServer,
  until,
} from '../support/harness.ts';
import {
  HOLDER_CALLS,
  ITEM_CALLS,
  itemIn,
  newPlace,
  type Place,
  secondsUntilLapse,
  sessionsTokenOf,
} from '../support/places.ts';

const TRACE = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate: 'vendor=1' };
const as = (worker: string): CallOptions => ({ headers: { 'anthropic-worker-id': worker } });

/** How far a holder came before its lease lapsed, and what the record of it then says. */
const LAPSES = {
  reservation_lapsed: async () => {},
  startup_lease_lapsed: (place: Place, id: string) => place.ack(id),
  async lease_lapsed(place: Place, id: string) {
    await place.ack(id);
    await place.beat(id, 'NO_HEARTBEAT');
  },
} as const;

const handOutsOf = ({ database }: Server, seq: string | null | undefined) =>
  database.rows(sql<Record<string, unknown>>`
    select work_id, worker_id, reason, environment_id from ${database.names.handOuts}
    where item_seq = ${String(seq)}::bigint order by superseded_at`);

/** An item with everything that a re-hand-out keeps, held by worker-1 until it lapsed. */
async function lostBy(server: Server, place: Place, reach: (place: Place, id: string) => Promise<unknown>) {
  const created = await server.call('POST', `/control/v1/environments/${place.environment.id}/work`, {
    as: OPERATOR_KEY,
    headers: TRACE,
    body: { data: { type: 'session', id: 'session-1' }, metadata: { team: 'tools' } },
  });
  const first = await place.poll('', as('worker-1'));
  const id: string = first.json.id;
  await reach(place, id);
  return { id, created: created.json, first, oldToken: sessionsTokenOf(first) };
}

async function oldIdIsGone(t: Test, place: Place, id: string, oldToken: string): Promise<void> {
  for (const [holder, calls, credential] of [
    ['the environment key', ITEM_CALLS, {}],
    ['the old sessions token', HOLDER_CALLS, { as: oldToken }],
  ] as const) {
    for (const [name, call] of Object.entries(calls)) {
      const { status, json } = await call(place, id, credential);
      t.equal(status, 404, `${name} with ${holder}`);
      t.equal(json.error.type, 'not_found_error');
      t.match(json.error.message, /handed out again under a new id/);
    }
  }
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database, queue } = server;

    for (const [reason, reach] of Object.entries(LAPSES)) {
      for (const [how, secondsAgo, between] of [
        ['polled', 1, async () => {}],
        ['swept, then polled', 3, () => queue.sweep()],
      ] as const) {
        t.test(`${reason}, ${how}: the new hand-out starts afresh and its old id reaches nothing`, async (t) => {
          const place = await newPlace(server);
          const { id, created, first, oldToken } = await lostBy(server, place, reach);
          const { seq } = await rowOf(database, id);
          await lapse(database, id, secondsAgo);
          await between();
          const again = await place.poll('', as('worker-2'));

          const { id: newId, secret, ...reset } = again.json;
          t.match(newId, /^work_/);
          t.not(newId, id);
          t.not(secret, first.json.secret);
          const { id: _, secret: __, ...asCreated } = created;
          t.strictSame(reset, asCreated, 'created_at, metadata and session are kept; what was reached is null again');
          t.match(Object.fromEntries(again.headers), TRACE);
          t.equal((await rowOf(database, newId)).seq, seq, 'the same item');
          t.strictSame(await handOutsOf(server, seq), [
            { work_id: id, worker_id: 'worker-1', reason, environment_id: place.environment.id },
          ]);

          const before = await rowOf(database, newId);
          await oldIdIsGone(t, place, id, oldToken);
          t.equal((await place.ack(newId, { as: oldToken })).status, 403, 'the old token is not for the new id');
          t.strictSame(await rowOf(database, newId), before);
          t.equal((await place.ack(newId, { as: sessionsTokenOf(again) })).json.state, 'starting');
        });
      }
    }

    t.test('every superseded id of an item is remembered, also one whose token was in use', async (t) => {
      const place = await newPlace(server);
      const { id, oldToken } = await lostBy(server, place, (place, id) => place.ack(id));
      t.equal((await place.ack(id, { as: oldToken })).status, 200);
      const { seq } = await rowOf(database, id);
      await lapse(database, id);
      const second: string = (await place.poll('', as('worker-2'))).json.id;
      await lapse(database, second);
      const third: string = (await place.poll()).json.id;
      t.equal(new Set([id, second, third]).size, 3);
      t.match(await handOutsOf(server, seq), [
        { work_id: id, worker_id: 'worker-1', reason: 'startup_lease_lapsed' },
        { work_id: second, worker_id: 'worker-2', reason: 'reservation_lapsed' },
      ]);
      await oldIdIsGone(t, place, id, oldToken);
    });

    t.test('an item of which no poll told keeps its id and leaves no record', async (t) => {
      const place = await newPlace(server);
      const id = await place.enqueue();
      t.equal((await place.poll()).json.id, id);
      t.strictSame(await handOutsOf(server, (await rowOf(database, id)).seq), []);
    });

    t.test('an id that was acked without a poll is known to somebody: the next hand-out has a new one', async (t) => {
      const place = await newPlace(server);
      const id = await place.enqueue();
      await place.ack(id);
      await lapse(database, id);
      t.not((await place.poll()).json.id, id);
      t.match((await place.ack(id)).json.error.message, /handed out again/);
    });

    t.test('an ack after the reservation lapsed, before anybody took the item, keeps it for its holder', async (t) => {
      const place = await newPlace(server);
      const { id } = await itemIn(place, 'queued, reservation lapsed');
      t.equal((await place.ack(id)).json.state, 'starting');
      t.equal((await place.poll()).text, 'null');
      t.equal((await place.beat(id, 'NO_HEARTBEAT')).json.state, 'active');
    });

    for (const [asked, reservedMs] of [
      ['', 5_000],
      ['?reclaim_older_than_ms=1', 1],
      ['?reclaim_older_than_ms=7000', 7_000],
      ['?reclaim_older_than_ms=600000', 600_000],
      ['?reclaim_older_than_ms=600001', 600_000],
      ['?reclaim_older_than_ms=9007199254740991', 600_000],
    ] as const) {
      t.test(`a poll ${asked || 'that names no reservation'} reserves for ${reservedMs} ms`, async (t) => {
        const place = await newPlace(server);
        const id = await place.enqueue();
        await place.poll(asked);
        const ms = 1_000 * ((await secondsUntilLapse(database, id, 'handed_out_at')) ?? 0);
        t.ok(ms > reservedMs - 500 && ms < reservedMs + 500, `${ms} ms`);
      });
    }

    t.test("only the taking poll's reservation counts: another's shorter one does not take the item", async (t) => {
      const place = await newPlace(server);
      const id = await place.enqueue();
      await place.poll('?reclaim_older_than_ms=600000');
      const before = await rowOf(database, id);
      t.equal((await place.poll('?reclaim_older_than_ms=1')).text, 'null');
      t.strictSame(await rowOf(database, id), before);
    });

    t.test("only the taking poll's reservation counts: another's longer one does not protect the item", async (t) => {
      const place = await newPlace(server);
      const id = await place.enqueue();
      await place.poll('?reclaim_older_than_ms=1');
      let taken: string | undefined;
      await until('the reservation of 1 ms lapsed', async () => {
        taken = (await place.poll('?reclaim_older_than_ms=600000')).json?.id;
        return taken !== undefined;
      });
      t.not(taken, id);
      t.equal((await place.ack(id)).status, 404);
    });

    for (const row of ['queued, reservation live', 'starting, lease live', 'active, lease lapsed'] as const) {
      t.test(`a session with an item ${row} gets no second one`, async (t) => {
        const place = await newPlace(server);
        const { id } = await itemIn(place, row);
        const before = await rowOf(database, id);
        t.equal(await place.enqueue(String(before.session_id)), id);
        t.strictSame(await rowOf(database, id), before);
      });
    }

    t.test('a stopping item frees the slot: the next item is handed out while the old worker winds down', async (t) => {
      const place = await newPlace(server);
      const { id, token } = await itemIn(place, 'stopping, lease live');
      const next = await place.enqueue(String((await rowOf(database, id)).session_id));
      t.not(next, id);
      t.equal((await place.poll()).json.id, next);
      t.match((await place.beat(id, token ?? '')).json, { state: 'stopping', lease_extended: false });
      t.equal((await place.ack(next)).json.state, 'starting');
    });

    t.test('the slot is of one environment, session and kind', async (t) => {
      const [place, elsewhere] = [await newPlace(server), await newPlace(server)];
      const one = { environmentId: place.environment.id, sessionId: 'session-1' };
      const first = await queue.enqueue(one);
      t.strictSame([first.created, (await queue.enqueue(one)).created], [true, false]);
      for (const other of [
        { sessionId: 'session-2' },
        { environmentId: elsewhere.environment.id },
        { kind: 'web_exec' as const },
      ]) {
        t.equal((await queue.enqueue({ ...one, ...other })).created, true, JSON.stringify(other));
      }
    });
  });
}
