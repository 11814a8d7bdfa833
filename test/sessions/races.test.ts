import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { deleteEnvironment } from '../../src/control/change-environment.ts';
import { stop } from '../../src/queue/stop.ts';
import { appendEvents } from '../../src/sessions/append.ts';
import { archiveSession, deleteSession } from '../../src/sessions/end.ts';
import type { SentEvent } from '../../src/sessions/events.ts';
import { listEvents, tailEvents } from '../../src/sessions/read-events.ts';
import { testServer } from '../support/harness.ts';
import { hold, replicas } from '../support/interleave.ts';
import { INTERRUPT, itemsOf, MESSAGE, relayPlace, result, sessionRow, TOOL, text } from '../support/sessions.ts';

/** A session of its own with an open call and, on request, its worker; and another replica. */
async function setUp(t: Test, withWorker = false) {
  const server = await testServer(t);
  const place = await relayPlace(server);
  const id = await place.session();
  const tool = await place.tool(id);
  const worker = withWorker ? await place.work() : undefined;
  const [replica] = await replicas(t, server.database, 1);
  if (replica === undefined) throw new Error('no replica');
  return { ...server, place, id, tool, workId: worker?.id ?? '', other: replica.database };
}
const caught = (promise: Promise<unknown>) => promise.catch((error: unknown) => error);
const sent = (...events: object[]) => events as SentEvent[];

t.test('of two results for one call at once one is stored, and both are told of it', async (t) => {
  const { database, other, place, id, tool } = await setUp(t);
  const held = await hold(t, database, (bound) =>
    appendEvents(bound, id, sent(result(tool, { content: text('first') })), 'worker'),
  );
  const second = appendEvents(other, id, sent(result(tool, { content: text('second') })), 'worker');
  await held.untilBlocked();
  await held.commit();
  t.strictSame(await second, { events: held.answer.events, isChanged: false, offered: [] });
  t.match(await place.events(id, '&types=user.tool_result'), [{ content: text('first') }]);
  t.equal((await place.events(id, '&types=user.tool_result')).length, 1);
});

t.test('where the first result is taken back, the second is the first', async (t) => {
  const { database, other, place, id, tool } = await setUp(t);
  const held = await hold(t, database, (bound) =>
    appendEvents(bound, id, sent(result(tool, { content: text('first') })), 'worker'),
  );
  const second = appendEvents(other, id, sent(result(tool, { content: text('second') })), 'worker');
  await held.untilBlocked();
  await held.rollback();
  t.match(await second, { isChanged: true });
  t.match(await place.events(id, '&types=user.tool_result'), [{ content: text('second') }]);
});

t.test('an append that waits for an archive finds the session ended', async (t) => {
  const { database, other, place, id, tool } = await setUp(t);
  const held = await hold(t, database, (bound) => archiveSession(bound, id));
  const late = [sent(MESSAGE), sent(result(tool))].map((events) => caught(appendEvents(other, id, events, 'worker')));
  await held.untilBlocked(2);
  await held.commit();
  t.match(await Promise.all(late), [{ code: 'session_terminated' }, { code: 'session_terminated' }]);
  t.equal((await place.events(id)).at(-1).type, 'session.status_terminated');
  t.match(await itemsOf(database, id), [{ state: 'stopped', stop_reason: 'cancelled' }]);
});

t.test('an archive that waits for an append ends what it has brought, its worker with it', async (t) => {
  const { database, other, place, id, workId } = await setUp(t, true);
  await place.stop(workId);
  const held = await hold(t, database, (bound) => appendEvents(bound, id, sent(TOOL), 'agent'));
  t.equal(held.answer.offered.length, 1);
  const archived = archiveSession(other, id);
  await held.untilBlocked();
  await held.commit();
  t.match(await archived, { status: 'terminated' });
  t.match((await place.events(id)).slice(-2), [{ type: 'session.status_idle' }, { type: 'session.status_terminated' }]);
  t.match(await itemsOf(database, id), [{ stop_reason: 'worker' }, { state: 'stopped', stop_reason: 'cancelled' }]);
  t.match(await sessionRow(database, id), { open_calls: '[]', needs_worker: false });
});

t.test('two archives at once end it once', async (t) => {
  const { database, other, place, id } = await setUp(t);
  const held = await hold(t, database, (bound) => archiveSession(bound, id));
  const again = archiveSession(other, id);
  await held.untilBlocked();
  await held.commit();
  t.strictSame(await again, held.answer);
  t.equal((await place.events(id, '&types=session.status_terminated')).length, 1);
});

t.test(
  'an append that waits for a delete finds no session; a delete that waits for an append takes it along',
  async (t) => {
    const { database, other, place, id } = await setUp(t);
    const held = await hold(t, database, (bound) => deleteSession(bound, id));
    const late = caught(appendEvents(other, id, sent(MESSAGE), 'agent'));
    await held.untilBlocked();
    await held.commit();
    t.match(await late, { code: 'not_found' });
    t.match(await itemsOf(database, id), [{ stop_reason: 'cancelled' }]);

    const next = await place.session();
    const appended = await hold(t, database, (bound) => appendEvents(bound, next, sent(MESSAGE, TOOL), 'agent'));
    const deleted = deleteSession(other, next);
    await appended.untilBlocked();
    await appended.commit();
    await deleted;
    t.equal(await sessionRow(database, next), undefined);
    t.match(await itemsOf(database, next), [{ state: 'stopped', stop_reason: 'cancelled' }]);
    t.strictSame(await other.rows(sql`select from ${database.names.sessionEvents}`), []);
  },
);

for (const [what, event] of [
  ['a call', TOOL],
  ['a message', MESSAGE],
  ['an interrupt', INTERRUPT],
] as const) {
  t.test(
    `${what} that comes as the worker stops is served: whichever is first, and whether it stops in the end`,
    async (t) => {
      for (const order of ['stop first', 'append first'] as const) {
        for (const end of ['commit', 'rollback'] as const) {
          const { database, other, queue, place, id, workId } = await setUp(t, true);
          const stops = (bound: typeof database) =>
            stop(bound, [{ environmentId: place.environmentId, id: workId, force: true, reason: 'worker' }]);
          const appends = (bound: typeof database) => appendEvents(bound, id, sent(event), 'agent');
          const [first, second] = order === 'stop first' ? [stops, appends] : [appends, stops];
          const held = await hold(t, database, first as (bound: typeof database) => Promise<unknown>);
          await second(other); // neither waits for the other
          await held[end]();
          await queue.sweep();
          const items = await itemsOf(database, id);
          const live = items.filter(({ state }) => state !== 'stopped');
          t.equal(live.length, 1, `${order}, ${end}: ${items.map(({ state }) => state)}`);
          const isServed = live[0]?.id === workId;
          t.equal(isServed, order === 'stop first' && end === 'rollback', 'by its worker where that did not stop');
          t.match(await sessionRow(database, id), { is_held: false, needs_worker: true });
        }
      }
    },
  );
}

t.test('two appends at once are numbered one after the other, and nothing comes behind what was read', async (t) => {
  const { database, other, id } = await setUp(t);
  const before = (await tailEvents(other, id, 0)).events.length;
  const held = await hold(t, database, (bound) => appendEvents(bound, id, sent(MESSAGE, MESSAGE), 'agent'));
  const second = appendEvents(other, id, sent(INTERRUPT), 'agent');
  await held.untilBlocked();
  t.equal((await tailEvents(other, id, 0)).events.length, before, 'neither is read before it is there');
  await held.commit();
  await second;
  const { events } = await tailEvents(other, id, 0);
  t.strictSame(
    events.map(({ seq }) => seq),
    events.map((_, index) => index + 1),
    'no number is missing',
  );
  t.strictSame(
    events.slice(before).map(({ type }) => type),
    ['user.message', 'user.message', 'user.interrupt'],
  );
  const instants = events.map(({ event }) => JSON.parse(event).processed_at);
  t.strictSame(instants, instants.toSorted(), 'nor goes time back');
  const page = await listEvents(other, id, { limit: 1_000 });
  t.strictSame(
    page.events,
    events.map(({ event }) => event),
  );
});

t.test('instants never go back, also where the clock does', async (t) => {
  const { database, place, id } = await setUp(t);
  await database.rows(sql`
    update ${database.names.sessions} set last_event_at = clock_timestamp() + interval '1 hour' where id = ${id}`);
  await place.append(id, MESSAGE);
  const row = await sessionRow(database, id);
  const [last] = (await place.events(id)).slice(-1);
  t.equal(Date.parse(last.processed_at), Date.parse(row.last_event_at));
  t.ok(Date.parse(last.processed_at) > Date.now() + 3_000_000);
});

t.test('an append and the deletion of its environment get along: one is told that the other came first', async (t) => {
  const { database, other, place, id, workId } = await setUp(t, true);
  await place.stop(workId);
  const held = await hold(t, database, (bound) => appendEvents(bound, id, sent(MESSAGE), 'agent'));
  const deleted = caught(deleteEnvironment(other, place.environmentId));
  await held.untilBlocked();
  await held.commit();
  t.match(await deleted, { code: 'conflict', message: /has unfinished work/ });

  const { id: next } = await place.poll();
  await place.stop(next);
  const gone = await hold(t, database, (bound) => deleteEnvironment(bound, place.environmentId));
  const late = caught(appendEvents(other, id, sent(MESSAGE), 'agent'));
  await gone.untilBlocked();
  await gone.commit();
  t.match(await late, { code: 'not_found' });
});
