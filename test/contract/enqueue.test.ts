import { sql } from 'kysely';
import t from 'tap';
import { prune } from '../../src/queue/prune.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { desk, newDesk } from '../support/desk.ts';
import { ENGINES, lapse, rowOf, testServer } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database, queue } = server;

    t.test('a new item is 201, holds what was asked and is handed out with its trace context', async (t) => {
      const { enqueue, poll } = await newDesk(server);
      const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
      const fields = {
        metadata: { team: 'tools' },
        priority: -100,
        max_hand_outs: 1_000_000,
        request_id: 'r'.repeat(200),
      };
      const { status, json } = await enqueue('session', fields, { headers: { traceparent, tracestate: 'a=b' } });
      t.equal(status, 201);
      t.match(json, { type: 'work', state: 'queued', data: { type: 'session', id: 'session' }, secret: null });
      t.same(json.metadata, { team: 'tools' });
      t.match(await rowOf(database, json.id), {
        kind: 'tool_exec',
        lane: 'wire',
        priority: -100,
        max_hand_outs: 1_000_000,
      });
      const polled = await poll();
      t.equal(polled.json.id, json.id);
      t.match(Object.fromEntries(polled.headers), { traceparent, tracestate: 'a=b' });
    });

    t.test('a live item covers, whatever the session has finished', async (t) => {
      const { enqueue } = await newDesk(server);
      const live = await enqueue('session');
      await database.rows(sql`
        insert into ${database.names.workItems} (id, environment_id, session_id, kind, lane, state, stopped_at, created_at)
        select id || n, environment_id, session_id, kind, lane, 'stopped', now(), created_at + n * interval '1 hour'
        from ${database.names.workItems}, generate_series(-3, 3) n where id = ${live.json.id} and n <> 0`);
      const again = await enqueue('session');
      t.equal(again.status, 200);
      t.equal(again.json.id, live.json.id);
    });

    t.test('only tool_exec of a self_hosted environment is on the wire', async (t) => {
      const [here, cloud] = [await newDesk(server), await newDesk(server, 'cloud')];
      for (const [answer, lane] of [
        [await here.enqueue('session', { kind: 'tool_exec' }), 'wire'],
        [await here.enqueue('session', { kind: 'web_exec' }), 'process'],
        [await cloud.enqueue('session'), 'process'],
      ] as const) {
        t.equal(answer.status, 201);
        t.match(await rowOf(database, answer.json.id), { lane });
      }
      t.equal((await cloud.poll()).json, null);
    });

    t.test('what is not to be handed out before an instant waits for it, and then goes by priority', async (t) => {
      const { enqueue, poll } = await newDesk(server);
      const later = await enqueue('later', { not_before: '2999-01-01T00:00:00+02:00' });
      t.match(await rowOf(database, later.json.id), { not_before: /^2998-12-31T22:00:00/ });
      t.equal((await poll()).json, null);
      const low = await enqueue('low', { priority: -1 });
      const high = await enqueue('high', { priority: 100 });
      t.equal((await poll()).json.id, high.json.id);
      t.equal((await poll()).json.id, low.json.id);
    });

    t.test('a live item covers its session and kind in its environment, and nothing else', async (t) => {
      const [here, there] = [await newDesk(server), await newDesk(server)];
      const first = await here.enqueue('session', { metadata: { n: '1' } });
      for (const state of ['queued', 'starting', 'active']) {
        if (state === 'starting') await here.poll().then(({ json }) => here.ack(json.id));
        if (state === 'active') await here.beat(first.json.id, 'NO_HEARTBEAT');
        const before = await here.all();
        const again = await here.enqueue('session', { metadata: { n: '2' }, input: 2, priority: 2 });
        t.match(again, { status: 200, json: { id: first.json.id, state, metadata: { n: '1' } } });
        t.same(await here.all(), before, `${state}: nothing is written`);
      }
      for (const other of [
        here.enqueue('session', { kind: 'model_turn' }),
        here.enqueue('other'),
        there.enqueue('session'),
      ]) {
        t.equal((await other).status, 201);
      }
      await here.stop(first.json.id);
      const next = await here.enqueue('session');
      t.equal(next.status, 201, 'an item that winds down has left its slot');
      t.not(next.json.id, first.json.id);
    });

    t.test(
      'a known request id answers its item in whatever state, under its present id, and writes nothing',
      async (t) => {
        const { enqueue, poll, ack, beat, stop, forceStop, all } = await newDesk(server);
        const request = { request_id: 'request', input: { n: 1 } };
        let { id } = (await enqueue('session', request)).json;
        const known = async (state: string, fields = {}) => {
          const before = await all();
          const { status, json } = await enqueue('session', { ...request, ...fields });
          t.match({ status, json }, { status: 200, json: { id, state, secret: null } }, state);
          t.same(await all(), before, `${state}: nothing is written`);
        };
        await known('queued', { follow_up: true });
        await poll();
        await lapse(database, id);
        ({ id } = (await poll()).json);
        await known('queued');
        await ack(id);
        await known('starting');
        await beat(id, 'NO_HEARTBEAT');
        await known('active', { follow_up: true });
        await stop(id);
        await known('stopping');
        await forceStop(id);
        await known('stopped', { follow_up: true });
        const fresh = await enqueue('session');
        t.equal(fresh.status, 201, 'without the id the session has a new item');
        await known('stopped');
        t.equal((await enqueue('session', { request_id: 'other' })).json.id, fresh.json.id);
      },
    );

    t.test('a known request id of another session or kind is 409, and nothing is written', async (t) => {
      const { enqueue, forceStop, all } = await newDesk(server);
      const { json } = await enqueue('session', { request_id: 'request' });
      for (const state of ['queued', 'stopped']) {
        if (state === 'stopped') await forceStop(json.id);
        const before = await all();
        for (const [session, kind] of [
          ['other', 'tool_exec'],
          ['session', 'web_exec'],
        ] as const) {
          const refused = await enqueue(session, { kind, request_id: 'request', follow_up: true });
          checkRefusal(t, refused, 409, `${state}, ${session} ${kind}`);
          t.match(refused.json.error.message, /^request_id "request" /);
        }
        t.same(await all(), before, state);
      }
    });

    t.test(
      'a request id is remembered for the item that covers it, in its environment, as long as the item',
      async (t) => {
        const [here, there] = [await newDesk(server), await newDesk(server)];
        const { json } = await here.enqueue('session');
        t.match(await here.enqueue('session', { request_id: 'one' }), { status: 200, json: { id: json.id } });
        t.match(await here.enqueue('session', { request_id: 'two' }), { status: 200, json: { id: json.id } });
        await here.forceStop(json.id);
        for (const request_id of ['one', 'two']) {
          t.match(await here.enqueue('session', { request_id }), {
            status: 200,
            json: { id: json.id, state: 'stopped' },
          });
        }
        t.equal((await there.enqueue('another session', { request_id: 'one' })).status, 201);
        await database.rows(sql`
        update ${database.names.workItems} set stopped_at = clock_timestamp() - interval '8 days' where id = ${json.id}`);
        await prune(database, DEFAULT_SETTINGS);
        t.equal((await here.enqueue('another session', { request_id: 'one' })).status, 201, 'pruned with its item');
      },
    );

    t.test(
      'an archived environment takes no new work and no follow-up; what is covered or known is answered',
      async (t) => {
        const { enqueue, forceStop, archive, all } = await newDesk(server);
        const { json } = await enqueue('session', { request_id: 'known' });
        const ended = await enqueue('ended', { request_id: 'ended' });
        await forceStop(ended.json.id);
        await archive();
        t.match(await enqueue('session', { request_id: 'covered' }), { status: 200, json: { id: json.id } });
        t.match(await enqueue('session', { request_id: 'known', follow_up: true }), {
          status: 200,
          json: { id: json.id },
        });
        t.match(await enqueue('ended', { request_id: 'ended' }), { status: 200, json: { id: ended.json.id } });
        const before = await all();
        for (const [session, fields] of [
          ['new', {}],
          ['ended', {}],
          ['session', { follow_up: true }],
        ] as const) {
          const refused = await enqueue(session, { ...fields, request_id: 'refused' });
          checkRefusal(t, refused, 400, session);
          t.match(refused.json.error, {
            message: /^environment env_\S+ is archived/,
            details: { error_code: 'environment_archived' },
          });
        }
        t.same(await all(), before);
      },
    );

    t.test('what cannot be is refused with the name of the field, and nothing is written', async (t) => {
      const { enqueue, all } = await newDesk(server);
      for (const [field, ...values] of [
        ['priority', -101, 101, 0.5, '1', null],
        ['max_hand_outs', 0, 1_000_001, 1.5, null],
        ['not_before', 'soon', '', '2026-02-30T00:00:00Z', '2026-01-01T00:00:00', 5],
        ['request_id', '', 'r'.repeat(201), 'a\0', '\ud800', 7, null],
        ['follow_up', 'true', 1, null],
        ['kind', 'other', null],
        ['metadata', [], { a: 1 }, { a: null }, 'x'],
        ['input', 'x'.repeat(262_143), { deep: ['\0'] }, { '\udfff': 1 }],
        ['unknown', 1],
      ] as const) {
        for (const value of values) {
          const refused = await enqueue('session', { [field]: value });
          checkRefusal(t, refused, 400, `${field} ${JSON.stringify(value).slice(0, 40)}`);
          t.match(refused.json.error.message, field, `${refused.json.error.message}`);
        }
      }
      for (const session of ['', 's'.repeat(257), 'a\0'])
        checkRefusal(t, await enqueue(session), 400, session.slice(0, 5));
      t.same(await all(), { items: [], ids: [], stored: [] });
      const { call } = server;
      checkRefusal(t, await desk({ call }, 'env_unknown').enqueue('session'), 404, 'no such environment');
    });

    t.test('texts that are something in SQL, JSON or an array are kept as they are', async (t) => {
      const { enqueue, batch } = await newDesk(server);
      const odd = ['NULL', 'null', '{}', '{a,b}', '"', '\\', "'", '\\"', ' ', ',', '\n', 'é😀', '%', '$1', '\u2028'];
      for (const text of odd) {
        const fields = { request_id: text, metadata: { [text]: text }, input: text };
        const { status, json } = await enqueue(text, fields);
        t.match({ status, session: json.data.id }, { status: 201, session: text });
        t.same(json.metadata, { [text]: text });
        t.equal((await enqueue(text, fields)).json.id, json.id);
        t.equal(
          await queue.retrieve({ environmentId: json.environment_id, id: json.id }).then((w) => w.sessionId),
          text,
        );
      }
      const again = await batch(odd.map((text) => [text, { request_id: text }]));
      t.strictSame(
        again.json.data.map(({ work }: { work: { data: { id: string } } }) => work.data.id),
        odd,
      );
    });
  });
}
