import { type RawBuilder, sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import type { Database } from '../../src/db/connect.ts';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

const setOf = (database: Database, id: string, set: RawBuilder<unknown>) =>
  database.rows(sql`update ${database.names.workItems} w set ${set} where w.id = ${id}`);

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    // What is handed out stays so, however slow the machine.
    const { call, database, queue } = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    let count = 0;
    /** An environment of the test's own, as the operator sees it. */
    const place = async () => {
      const { id } = await createEnvironment(database, { name: `place ${count++}`, type: 'self_hosted' });
      const get = (path = '') => call('GET', `/v1/environments/${id}/work${path}`, { as: OPERATOR_KEY });
      const post = (path: string) => call('POST', `/v1/environments/${id}/work${path}`, { as: OPERATOR_KEY });
      const enqueue = async (notBefore?: string) => {
        const request = { environmentId: id, sessionId: `session ${count++}`, ...(notBefore ? { notBefore } : {}) };
        return (await queue.enqueue(request)).item.id;
      };
      const poll = (worker?: string) =>
        call('GET', `/v1/environments/${id}/work/poll`, {
          as: OPERATOR_KEY,
          headers: worker === undefined ? {} : { 'anthropic-worker-id': worker },
        });
      return { id, get, post, enqueue, poll };
    };
    const sessionsOf = (json: { data: { data: { id: string } }[] }) => json.data.map((item) => item.data.id);

    t.test('a list is newest first, by creation and then by the internal key', async (t) => {
      const { get, enqueue } = await place();
      const ids = [await enqueue(), await enqueue(), await enqueue(), await enqueue()];
      await setOf(database, ids[3] ?? '', sql`created_at = '2020-01-01T00:00:00Z'`);
      for (const id of [ids[0], ids[2]]) await setOf(database, id ?? '', sql`created_at = '2040-01-01T00:00:00Z'`);
      const { status, json } = await get();
      t.equal(status, 200);
      t.strictSame(
        json.data.map((item: { id: string }) => item.id),
        [ids[2], ids[0], ids[1], ids[3]],
      );
      t.equal(json.next_page, null);
      t.strictSame(Object.keys(json).sort(), ['data', 'next_page']);
      const two = (await get('?limit=2')).json;
      t.strictSame(two.data, json.data.slice(0, 2), 'the newest are on the first page');
      t.strictSame((await get(`?limit=2&page=${two.next_page}`)).json.data, json.data.slice(2), 'the rest on the next');
    });

    t.test('pages give each item once, though ids rotate and items come between them', async (t) => {
      const { get, enqueue, poll } = await place();
      for (let n = 0; n < 7; n++) await enqueue();
      // All of one instant: then only the internal key tells where a page ended.
      await database.rows(sql`update ${database.names.workItems} set created_at = '2030-01-01T00:00:00Z'`);
      const whole = sessionsOf((await get()).json);
      const seen: string[] = [];
      let page = '';
      for (;;) {
        const { json } = await get(`?limit=3${page}`);
        seen.push(...sessionsOf(json));
        if (json.next_page === null) break;
        t.equal(json.data.length, 3, 'a full page when there is another');
        page = `&page=${json.next_page}`;
        const old = (await poll()).json.id;
        await lapse(database, old);
        t.not((await poll()).json.id, null);
        const newest = await enqueue();
        await setOf(database, newest, sql`created_at = '2040-01-01T00:00:00Z'`);
      }
      t.strictSame(seen, whole);
      t.equal((await get('?limit=10')).json.next_page, null, 'exactly full is the end');
    });

    t.test('20 items a page unasked, 1000 at most', async (t) => {
      const { id, get } = await place();
      await database.rows(sql`
        insert into ${database.names.workItems} (id, environment_id, session_id, kind, lane, state)
        select 'work_bulk_' || n, ${id}, 'bulk ' || n, 'tool_exec', 'wire', 'queued' from generate_series(1, 1001) n`);
      for (const [query, length] of [
        ['', 20],
        ['?limit=1', 1],
        ['?limit=1000', 1_000],
      ] as const) {
        const { json } = await get(query);
        t.equal(json.data.length, length, query);
        t.type(json.next_page, 'string', query);
      }
      const { json } = await get('?limit=1000');
      const last = (await get(`?limit=1000&page=${json.next_page}`)).json;
      t.equal(last.data.length, 1);
      t.equal(last.next_page, null);
    });

    t.test('an environment without items has one empty page', async (t) => {
      const { get } = await place();
      t.strictSame((await get()).json, { data: [], next_page: null });
    });

    t.test('a page that no answer gave out is 400', async (t) => {
      const { get, enqueue } = await place();
      await enqueue();
      await enqueue();
      const { next_page: real } = (await get('?limit=1')).json;
      t.equal((await get(`?page=${real}`)).status, 200, 'the real one');
      const text = Buffer.from(real, 'base64url').toString();
      const [instant = '', key = ''] = text.split(' ');
      const forged = [
        '',
        `${instant} `,
        ` ${key}`,
        `${instant} -1`,
        `${instant} 0`,
        `${instant} 1.5`,
        `${instant} 1e3`,
        `${instant} x`,
      ];
      forged.push(
        `${instant} 9223372036854775808`,
        `${instant} ${'9'.repeat(150)}`,
        `${text} ${text}`,
        `${text}\0`,
        `${text}'`,
      );
      for (const date of [
        '2026-02-30',
        '2026-13-01',
        '2026-00-10',
        '2026-01-00',
        '0000-01-01',
        '-001-01-01',
        '99999-01-01',
      ]) {
        forged.push(`${date}T00:00:00.000000Z ${key}`);
      }
      for (const time of ['24:00:00', '23:60:00', '23:59:60', '99:99:99'])
        forged.push(`2026-01-01T${time}.000000Z ${key}`);
      forged.push(`2026-01-01 ${key}`, `infinity ${key}`, `now ${key}`, JSON.stringify({ page: 2 }), '2');
      const pages = forged.map((cursor) => Buffer.from(cursor).toString('base64url'));
      pages.push(
        '2',
        'next',
        `${real}==`,
        `${real}!`,
        `%20${real}`,
        real.slice(1),
        'x'.repeat(257),
        `${real}&page=${real}`,
      );
      for (const page of pages) {
        const answer = await get(`?page=${page}`);
        const what = `${page.slice(0, 60)} (${Buffer.from(page, 'base64url').toString().slice(0, 50)})`;
        checkRefusal(t, answer, 400, what);
        t.match(answer.json.error.message, /page/, `${what}: named`);
      }
    });

    t.test(
      'depth is what is free now, pending what is reserved, oldest is of both; acked items are in neither',
      async (t) => {
        const { get, post, enqueue, poll } = await place();
        const figures = async () => {
          const { json } = await get('/stats');
          t.strictSame(Object.keys(json).sort(), ['depth', 'oldest_queued_at', 'pending', 'type', 'workers_polling']);
          t.equal(json.type, 'work_queue_stats');
          return [json.depth, json.pending, json.oldest_queued_at];
        };
        const created = async (id: string) => (await get(`/${id}`)).json.created_at;
        t.strictSame(await figures(), [0, 0, null]);

        const [first, second] = [await enqueue(), await enqueue()];
        await enqueue('2999-01-01T00:00:00Z');
        t.strictSame(await figures(), [2, 0, await created(first)], 'not before its time');

        t.equal((await poll()).json.id, first);
        t.strictSame(await figures(), [1, 1, await created(first)], 'handed out');

        await lapse(database, first);
        t.strictSame(await figures(), [2, 0, await created(first)], 'a lapsed reservation is free again');

        const { id: again } = (await poll()).json;
        await post(`/${again}/ack`);
        t.strictSame(await figures(), [1, 0, await created(second)], 'acked');

        await post(`/${again}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`);
        await post(`/${again}/stop`);
        await post(`/${second}/stop`);
        t.strictSame(await figures(), [0, 0, null], 'stopping and stopped');
        t.match((await get(`/${again}`)).json.state, 'stopping');
      },
    );

    t.test('workers polling are distinct ids of this environment, seen within 30 s', async (t) => {
      const [here, there] = [await place(), await place()];
      const workers = async () => (await here.get('/stats')).json.workers_polling;
      t.equal(await workers(), 0);
      for (const worker of ['one', 'two', 'one', undefined]) await here.poll(worker);
      await there.poll('three');
      t.equal(await workers(), 2);

      const seen = (seconds: number) =>
        database.rows(sql`update ${database.names.workerSightings} set
          seen_at = clock_timestamp() - ${seconds} * interval '1 second' where worker_id = 'one'`);
      await seen(28);
      t.equal(await workers(), 2, 'within 30 s');
      await seen(31);
      t.equal(await workers(), 1, 'past 30 s');
      await here.enqueue();
      t.not((await here.poll('one')).json, null);
      t.equal(await workers(), 2, 'a poll that is given work counts too');
    });

    t.test(
      'list and stats show nothing of another environment or of the other lane, and unknown ones are 404',
      async (t) => {
        const [here, there] = [await place(), await place()];
        const own = await here.enqueue();
        await there.enqueue();
        await queue.enqueue({ environmentId: here.id, sessionId: 'hidden', kind: 'model_turn' });
        const { json } = await here.get();
        t.strictSame(
          json.data.map((item: { id: string }) => item.id),
          [own],
        );
        t.equal((await here.get('/stats')).json.depth, 1);
        for (const path of ['', '/stats']) {
          checkRefusal(t, await call('GET', `/v1/environments/env_x/work${path}`, { as: OPERATOR_KEY }), 404, path);
        }
      },
    );
  });
}
