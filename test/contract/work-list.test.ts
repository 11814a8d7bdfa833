import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { newPlace, type Place } from '../support/places.ts';
import { checkRefusal } from '../support/wire.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { queue, call, database } = server;
    const list = ({ environment }: Place, query = '') =>
      call('GET', `/control/v1/environments/${environment.id}/work${query}`, { as: OPERATOR_KEY });
    const sessionsOf = async (place: Place, query = ''): Promise<string[]> =>
      (await list(place, query)).json.data.map((item: { data: { id: string } }) => item.data.id);

    /** Two environments with the same of everything; the oldest first. */
    const places = async () => {
      const made = [await newPlace(server), await newPlace(server)] as const;
      for (const place of made) {
        const environmentId = place.environment.id;
        const polled = async (session: string, worker: string) => {
          await place.enqueue(session);
          return (await place.poll('', { headers: { 'anthropic-worker-id': worker } })).json.id;
        };
        const active = await polled('active', 'one');
        await place.ack(active);
        await place.beat(active, 'NO_HEARTBEAT');
        await place.ack(await polled('starting', 'two'));
        await place.stop(await polled('stopped', 'two'));
        await place.forceStop(await polled('operated', 'one'), { as: OPERATOR_KEY });
        await queue.enqueue({ environmentId, sessionId: 'active', kind: 'model_turn' });
        await queue.enqueue({ environmentId, sessionId: 'failed', kind: 'mcp_exec' });
        await database.rows(sql`update ${database.names.workItems}
          set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'failed' where session_id = 'failed'`);
        await place.enqueue('queued');
      }
      return made[0];
    };

    t.test('both lanes are listed, newest first, each item in full', async (t) => {
      const place = await places();
      const { status, json } = await list(place);
      t.equal(status, 200);
      t.strictSame(Object.keys(json).sort(), ['data', 'next_page']);
      const sessions = json.data.map((item: { data: { id: string } }) => item.data.id);
      t.strictSame(sessions, ['queued', 'failed', 'active', 'operated', 'stopped', 'starting', 'active']);
      const held = json.data.at(-1);
      const { secret, ...work } = (
        await call('GET', `/v1/environments/${place.environment.id}/work/${held.id}`, { as: OPERATOR_KEY })
      ).json;
      t.strictSame(held, {
        ...work,
        ...{ kind: 'tool_exec', lane: 'wire', priority: 0, not_before: null, max_hand_outs: null },
        ...{ hand_out_count: 1, worker_id: 'one', handed_out_at: held.handed_out_at },
        ...{ attempt: 1, max_attempts: null, next_attempt_at: null, hand_over_count: 0 },
        ...{ cancel_requested_at: null, last_error: null, outcome: null, has_result: false },
        ...{
          lease_expires_at: held.lease_expires_at,
          stop_reason: null,
          requeued_from: null,
          requeued_as: null,
          follow_up: false,
        },
      });
      t.ok(held.handed_out_at < held.acknowledged_at && held.lease_expires_at > held.latest_heartbeat_at);
      t.match(json.data[1], { lane: 'process', kind: 'mcp_exec', stop_reason: 'failed', hand_out_count: 0 });
    });

    t.test('what else an item has is told', async (t) => {
      const place = await newPlace(server);
      const notBefore = '2999-01-01T00:00:00.000000Z';
      const { item } = await queue.enqueue({
        environmentId: place.environment.id,
        sessionId: 's',
        priority: -7,
        notBefore,
      });
      await database.rows(sql`update ${database.names.workItems}
        set max_hand_outs = 3, requeued_from = 'work_before', follow_up = '{}' where id = ${item.id}`);
      const told = {
        priority: -7,
        not_before: notBefore,
        max_hand_outs: 3,
        requeued_from: 'work_before',
        follow_up: true,
      };
      t.match((await list(place)).json.data, [told]);
    });

    t.test('a filter leaves what has one of its values, and filters are all to be passed', async (t) => {
      const place = await places();
      const cases = {
        '?state=queued': ['queued', 'active'],
        '?state=active': ['active'],
        '?state=starting&state=active': ['starting', 'active'],
        '?state=stopped': ['failed', 'operated', 'stopped'],
        '?state=stopping': [],
        '?state=queued&state=starting&state=active&state=stopping&state=stopped': await sessionsOf(place),
        '?session=active': ['active', 'active'],
        '?session=active&session=queued&session=active': ['queued', 'active', 'active'],
        '?session=active&state=active': ['active'],
        '?session=nobody': [],
        '?kind=model_turn': ['active'],
        '?kind=model_turn&kind=mcp_exec': ['failed', 'active'],
        '?kind=tool_exec&state=queued': ['queued'],
        '?reason=failed': ['failed'],
        '?reason=failed&reason=exhausted': ['failed'],
        '?reason=exhausted': [],
        '?reason=failed&state=queued': [],
        '?reason=failed&state=stopped&kind=tool_exec': [],
        '?reason=failed&reason=operator': ['failed', 'operated'],
        '?reason=worker': ['stopped'],
        '?worker=one': ['operated', 'active'],
        '?worker=two&worker=one&state=stopped': ['operated', 'stopped'],
        '?worker=three': [],
      };
      for (const [query, sessions] of Object.entries(cases)) {
        t.strictSame(await sessionsOf(place, query), sessions, query);
        const pages: string[] = [];
        for (let page: string | null = ''; page !== null && pages.length <= sessions.length; ) {
          const { json }: { json: { data: { data: { id: string } }[]; next_page: string | null } } = await list(
            place,
            `${query}&limit=2${page === '' ? '' : `&page=${page}`}`,
          );
          pages.push(...json.data.map((item) => item.data.id));
          page = json.next_page;
        }
        t.strictSame(pages, sessions, `${query}, by pages`);
      }
    });

    t.test('pages give each item once, though ids rotate and all are of one instant', async (t) => {
      const place = await newPlace(server);
      const environmentId = place.environment.id;
      for (const sessionId of ['a', 'b', 'c', 'd', 'e']) {
        await queue.enqueue({ environmentId, sessionId });
        await queue.enqueue({ environmentId, sessionId, kind: 'web_exec' });
      }
      await database.rows(sql`update ${database.names.workItems} set created_at = '2030-01-01T00:00:00Z'
        where environment_id = ${environmentId}`);
      t.strictSame(await sessionsOf(place), ['e', 'e', 'd', 'd', 'c', 'c', 'b', 'b', 'a', 'a']);
      const first = (await list(place, '?limit=4')).json;
      const { id } = (await place.poll()).json;
      await lapse(database, id);
      await place.poll();
      const second = (await list(place, `?limit=10&page=${first.next_page}`)).json;
      t.equal(second.next_page, null);
      t.strictSame(
        [...first.data, ...second.data].map((item) => `${item.data.id} ${item.kind}`),
        ['e', 'd', 'c', 'b', 'a'].flatMap((session) => [`${session} web_exec`, `${session} tool_exec`]),
      );
    });

    const refused = async (t: Test, place: Place, query: string, ...words: (string | RegExp)[]) => {
      const answer = await list(place, query);
      checkRefusal(t, answer, 400, query);
      for (const word of words) t.match(answer.json.error.message, word, query);
    };

    t.test('values that cannot be are 400, with the field and what it may be', async (t) => {
      const place = await newPlace(server);
      const states = /^state must be one of queued, starting, active, stopping, stopped$/;
      for (const query of ['?state=done', '?state=', '?state=queued&state=QUEUED', '?state=queued,active']) {
        await refused(t, place, query, states);
      }
      await refused(t, place, '?kind=work', /^kind must be one of model_turn, tool_exec/);
      await refused(t, place, '?reason=bored', /^reason must be one of worker, operator, abandoned, exhausted/);
      for (const field of ['session', 'worker']) {
        const rule = new RegExp(`^${field} must be a string of 1 to 256 characters$`);
        await refused(t, place, `?${field}=`, rule);
        await refused(t, place, `?${field}=fine&${field}=${'x'.repeat(257)}`, rule);
        await refused(t, place, `?${field}=a%00b`, field, 'NUL');
      }
      for (const query of ['?limit=0', '?limit=1001', '?limit=5&limit=5'])
        await refused(t, place, query, /^limit must/);
      for (const query of ['?page=x', '?page=a&page=b']) await refused(t, place, query, /^page must/);
    });

    t.test('there are at most 16 filter values in all', async (t) => {
      const place = await newPlace(server);
      const sessions = Array.from({ length: 8 }, (_, n) => `session=${n}`).join('&');
      const workers = Array.from({ length: 7 }, (_, n) => `worker=${n}`).join('&');
      t.equal((await list(place, `?${sessions}&${workers}&state=queued`)).status, 200);
      await refused(t, place, `?${sessions}&${workers}&state=queued&kind=tool_exec`, /at most 16 filter values.*17/);
      await refused(t, place, `?${Array.from({ length: 17 }, () => 'state=queued').join('&')}`, /at most 16/);
    });

    t.test('an unknown environment is 404; on the wire a filter is not looked at', async (t) => {
      checkRefusal(t, await call('GET', '/control/v1/environments/env_x/work', { as: OPERATOR_KEY }), 404, 'unknown');
      const place = await newPlace(server);
      await place.enqueue();
      t.equal((await place.get('?state=active&state=nonsense')).json.data.length, 1);
    });
  });
}
