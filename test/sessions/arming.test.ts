import t from 'tap';
import { archiveEnvironment } from '../../src/control/change-environment.ts';
import { appendEvents } from '../../src/sessions/append.ts';
import type { SentEvent } from '../../src/sessions/events.ts';
import { sessionTopic } from '../../src/sessions/session.ts';
import { watch } from '../support/gates.ts';
import { ENGINES, testServer } from '../support/harness.ts';
import {
  ASKED,
  CUSTOM,
  customResult,
  DENIED,
  everything,
  INTERRUPT,
  itemsOf,
  MESSAGE,
  type RelayPlace,
  relayPlace,
  result,
  SAID,
  TOOL,
  verdict,
} from '../support/sessions.ts';

type Case = (place: RelayPlace, id: string) => Promise<unknown>;
const send =
  (...events: object[]): Case =>
  (place, id) =>
    place.append(id, ...events);

/** A fresh session, and whether there is work for it afterwards. */
const TABLE: Readonly<Record<string, readonly [act: Case, isArmed: boolean]>> = {
  'a message': [send(MESSAGE), true],
  'an interrupt': [send(INTERRUPT), true],
  'a word of the agent': [send(SAID), false],
  'a message that is answered with it': [send(MESSAGE, SAID), true],
  'a call': [send(TOOL), true],
  'a call that is to be asked for': [send(ASKED), false],
  'a call that was denied': [send(DENIED), false],
  'a custom call': [send(CUSTOM), false],
  'a custom call beside one that a worker runs': [send(CUSTOM, TOOL), true],
  'what is asked for, allowed': [
    async (place, id) => place.append(id, verdict(await place.tool(id, ASKED), 'allow')),
    true,
  ],
  'what is asked for, refused': [
    async (place, id) => place.append(id, verdict(await place.tool(id, ASKED), 'deny')),
    false,
  ],
  'a custom call that the agent answers': [
    async (place, id) => place.append(id, customResult(await place.tool(id, CUSTOM)), CUSTOM),
    false,
  ],
  'a custom call, a worker having answered one of that name': [
    async (place, id) => {
      await place.answer(id, customResult(await place.tool(id, CUSTOM)));
      await place.append(id, CUSTOM);
    },
    true,
  ],
  'a custom call, a worker having answered one of another name': [
    async (place, id) => {
      await place.answer(id, customResult(await place.tool(id, { ...CUSTOM, name: 'other' })));
      await place.append(id, CUSTOM);
    },
    false,
  ],
  'a custom call, a worker having answered one elsewhere': [
    async (place, id) => {
      const elsewhere = await place.session();
      await place.answer(elsewhere, customResult(await place.tool(elsewhere, CUSTOM)));
      await place.append(id, CUSTOM);
    },
    false,
  ],
};

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database, queue } = server;

    t.test('who needs a worker is enqueued with its event, and nobody else', async (t) => {
      for (const [what, [act, isArmed]] of Object.entries(TABLE)) {
        const place = await relayPlace(server);
        const id = await place.session();
        await act(place, id);
        const armed = isArmed ? [{ state: 'queued', not_before: null }] : [];
        t.match(await itemsOf(database, id), armed, what);
        t.equal((await itemsOf(database, id)).length, armed.length, what);
        await queue.sweep();
        t.equal((await itemsOf(database, id)).length, armed.length, `${what}, and not later`);
      }
    });

    t.test('a session has one live item, and another one when that winds down', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      await place.append(id, MESSAGE, TOOL, TOOL);
      await place.append(id, TOOL);
      const { id: workId } = await place.work();
      await place.append(id, TOOL, INTERRUPT);
      t.match(await itemsOf(database, id), [{ id: workId, state: 'active' }]);
      t.equal((await itemsOf(database, id)).length, 1);
      await place.stop(workId, { body: { force: false } });
      await place.append(id, TOOL);
      t.match(await itemsOf(database, id), [{ state: 'stopping' }, { state: 'queued' }]);
    });

    t.test('what cannot be enqueued is not stored either', async (t) => {
      const place = await relayPlace(server);
      const [covered, id] = [await place.session(), await place.session()];
      await place.append(covered, TOOL);
      await place.append(id, ASKED);
      const [asked] = await place.events(id);
      await archiveEnvironment(database, place.environmentId);
      const before = await everything(database);
      for (const events of [[MESSAGE], [INTERRUPT], [SAID, TOOL], [verdict(asked.id, 'allow')]]) {
        const { status, json } = await place.send(id, events);
        t.match(
          { status, json },
          { status: 400, json: { error: { details: { error_code: 'environment_archived' } } } },
        );
        t.equal(await everything(database), before, JSON.stringify(events));
      }
      await place.append(id, SAID, CUSTOM, verdict(asked.id, 'deny'));
      await place.append(covered, MESSAGE);
      t.equal((await itemsOf(database, covered)).length, 1, 'whoever has a worker keeps it');
    });

    t.test('an enqueue that fails takes the event with it', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const before = await everything(database);
      const watched = watch(database, /with wanted as materialized/);
      watched.fail(new Error('broken'));
      const bound = { ...watched.database, transaction: database.transaction };
      await t.rejects(appendEvents(bound, id, [TOOL as SentEvent], 'agent'), { message: 'broken' });
      t.equal(watched.begun(), 1);
      t.equal(await everything(database), before);
    });

    t.test('a poll that waits is woken by the event, with the trace of its request', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const work = `/v1/environments/${place.environmentId}/work/poll?block_ms=999`;
      const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
      const polled = call('GET', work, { as: place.key });
      await place.send(id, [TOOL], { headers: { traceparent, tracestate: 'a=b' } });
      const answer = await polled;
      t.match(answer.json, { data: { type: 'session', id } });
      t.equal(answer.headers.get('traceparent'), traceparent);
      t.equal(answer.headers.get('tracestate'), 'a=b');
      const again = call('GET', work, { as: place.key });
      const first = await place.create({ initial_events: [TOOL] }, { headers: { traceparent } });
      const next = await again;
      t.match(next.json, { data: { id: first.json.id } }, 'also by the first event of a session');
      t.equal(next.headers.get('traceparent'), traceparent);
    });

    t.test('who streams a session is woken by what is new, and by nothing else', async (t) => {
      const place = await relayPlace(server);
      const [id, neighbour] = [await place.session(), await place.session()];
      let woken = 0;
      t.teardown(queue.listen([sessionTopic(id)], () => woken++));
      const tool = await place.tool(id);
      t.equal(woken, 1);
      await place.answer(id, result(tool));
      t.equal(woken, 2);
      await place.answer(id, result(tool));
      await place.send(id, [verdict('sevt_none', 'deny')]);
      await place.append(neighbour, MESSAGE);
      t.equal(woken, 2, 'not by a repeat, a refusal or a neighbour');
    });
  });
}
