import t from 'tap';
import { desk, newDesk } from '../support/desk.ts';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

type Entry = { created: boolean; work: { id: string; state: string; data: { id: string } } };

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });

    t.test('1,000 items are put in by one call and answered in the order asked', async (t) => {
      const { batch, items } = await newDesk(server);
      const sessions = Array.from({ length: 1_000 }, (_, n) => `session ${(n * 617) % 1_000}`);
      const { status, json } = await batch(
        sessions.map((session) => [session, { input: session, request_id: session }]),
      );
      t.equal(status, 200);
      t.strictSame(
        json.data.map(({ work }: Entry) => work.data.id),
        sessions,
      );
      t.ok(json.data.every(({ created, work }: Entry) => created && work.state === 'queued'));
      const stored = await items();
      t.equal(stored.length, 1_000);
      t.ok(
        stored.every(({ session, input }) => input === JSON.stringify(session)),
        'each with its own input',
      );
      const again = await batch(sessions.map((session) => [session, { request_id: session }]));
      t.strictSame(
        again.json.data,
        json.data.map((entry: Entry) => ({ ...entry, created: false })),
      );
    });

    t.test('a batch is handed out and listed in the order given', async (t) => {
      const { batch, poll, get } = await newDesk(server);
      const sessions = ['c', 'a', 'e', 'd', 'b'];
      await batch(sessions.map((session) => [session]));
      const listed = (await get('')).json.data.map(({ data }: Entry['work']) => data.id);
      t.strictSame(listed, sessions.toReversed(), 'newest first');
      for (const session of sessions) t.equal((await poll()).json.data.id, session);
    });

    t.test('an earlier item covers a later one, whose follow-up comes after it: the first of them', async (t) => {
      const { batch, stop, items } = await newDesk(server);
      const { json } = await batch([
        ['session', { follow_up: true, input: 'first' }],
        ['session', { input: 'covered', request_id: 'covered' }],
        ['other kind', { kind: 'mcp_exec' }],
        ['session', { follow_up: true, input: 'next', request_id: 'next' }],
        ['session', { follow_up: true, input: 'too late' }],
      ]);
      const [first, ...later] = json.data as Entry[];
      t.strictSame(
        (json.data as Entry[]).map(({ created }) => created),
        [true, false, true, false, false],
      );
      for (const n of [0, 2, 3]) t.equal(later[n]?.work.id, first?.work.id);
      await stop(first?.work.id ?? '');
      t.strictSame(
        (await items()).map(({ input }) => input),
        ['"first"', null, '"next"'],
      );
    });

    t.test('an item that was there before covers the batch, and the first follow-up is its', async (t) => {
      const { enqueue, batch, stop, items } = await newDesk(server);
      const { id } = (await enqueue('session', { input: 'first' })).json;
      const { json } = await batch([
        ['session', { request_id: 'one' }],
        ['session', { follow_up: true, input: 'next' }],
        ['session', { follow_up: true, input: 'too late' }],
      ]);
      for (const { created, work } of json.data) t.match({ created, id: work.id }, { created: false, id });
      await stop(id);
      t.match(await enqueue('session', { request_id: 'one' }), { status: 200, json: { id, state: 'stopped' } });
      t.strictSame(
        (await items()).map(({ input }) => input),
        ['"first"', '"next"'],
      );
    });

    t.test('the same request id twice names one item, and is no follow-up of it', async (t) => {
      const { batch, stop, items } = await newDesk(server);
      const { json } = await batch([
        ['session', { request_id: 'request' }],
        ['session', { request_id: 'request', follow_up: true, input: 'none' }],
      ]);
      const [first, second] = json.data as Entry[];
      t.match([first, second], [{ created: true }, { created: false, work: { id: first?.work.id } }]);
      await stop(first?.work.id ?? '');
      t.equal((await items()).length, 1);
      const known = await batch([
        ['session', { request_id: 'request', follow_up: true }],
        ['session', { request_id: 'request' }],
        ['session', { request_id: 'fresh' }],
        ['session', { request_id: 'request' }],
      ]);
      const ids = (known.json.data as Entry[]).map(({ work }) => work.id === first?.work.id);
      t.strictSame(ids, [true, true, false, true], 'known before: a stopped one covers nobody');
    });

    t.test('in an archived environment a repeat of what is covered is answered', async (t) => {
      const { enqueue, batch, archive } = await newDesk(server);
      const { id } = (await enqueue('session')).json;
      await archive();
      const { status, json } = await batch([
        ['session', { request_id: 'request' }],
        ['session', { request_id: 'request', follow_up: true }],
      ]);
      t.equal(status, 200);
      for (const { work } of json.data) t.equal(work.id, id);
    });

    t.test('what one item is refused for refuses the batch, by its number, and nothing is written', async (t) => {
      const { enqueue, batch, all, archive } = await newDesk(server);
      await enqueue('covered', { request_id: 'known' });
      const good = (n: number) => [`new ${n}`, { input: n, request_id: `new ${n}` }] as const;
      const among = (...items: Parameters<typeof batch>[0]) =>
        batch([good(0), ['covered', { follow_up: true, request_id: 'remembered' }], ...items, good(1)]);
      const before = await all();
      const refusals = [
        ['a known request id of another session', 409, /^items\.2\.request_id /, [['other', { request_id: 'known' }]]],
        [
          'a known request id of another kind',
          409,
          /^items\.2\.request_id /,
          [['covered', { request_id: 'known', kind: 'web_exec' }]],
        ],
        [
          'one request id for two sessions',
          409,
          /^items\.3\.request_id /,
          [
            ['a', { request_id: 'r' }],
            ['b', { request_id: 'r' }],
          ],
        ],
        [
          'one request id for two kinds',
          409,
          /^items\.3\.request_id /,
          [
            ['a', { request_id: 'r' }],
            ['a', { request_id: 'r', kind: 'web_exec' }],
          ],
        ],
        [
          'one for two sessions, one of them covered',
          409,
          /^items\.2\.request_id /,
          [['b', { request_id: 'remembered' }]],
        ],
        ['priority', 400, /^items\.2\.priority /, [['a', { priority: 101 }]]],
        ['no instant', 400, /^items\.2\.not_before /, [['a', { not_before: 'soon' }]]],
        ['too much input', 400, /^items\.2\.input /, [['a', { input: 'x'.repeat(262_143) }]]],
        ['metadata', 400, /^items\.2\.metadata/, [['a', { metadata: { ['k'.repeat(65)]: '' } }]]],
        ['request id', 400, /^items\.2\.request_id /, [['a', { request_id: '' }]]],
        ['no session', 400, /^items\.2\.data\.id /, [['']]],
        ['unknown field', 400, /^items\.2\.unknown /, [['a', { unknown: 1 }]]],
      ] as const;
      for (const [what, status, message, items] of refusals) {
        const refused = await among(...items);
        checkRefusal(t, refused, status, what);
        t.match(refused.json.error.message, message, what);
        t.same(await all(), before, `${what}: nothing is written`);
      }
      checkRefusal(t, await batch([['other', { request_id: 'known' }]]), 409, 'a batch of one');
      t.match((await batch([['other', { request_id: 'known' }]])).json.error, {
        message: /^items\.0\./,
        details: { index: 0 },
      });

      await archive();
      for (const [n, items] of [
        [0, [['new']]],
        [1, [['covered'], ['new']]],
        [1, [['covered'], ['covered', { follow_up: true }]]],
      ] as const) {
        const refused = await batch(items);
        checkRefusal(t, refused, 400, 'archived');
        t.match(refused.json.error, { message: new RegExp(`^items\\.${n}: environment \\S+ is archived`) });
      }
      t.same(await all(), before);
      const covered = await batch([['covered'], ['covered', { request_id: 'known', follow_up: true }]]);
      t.equal(covered.status, 200, 'neither of them is new');
    });

    t.test('1 to 1,000 items are a batch, of at most 8 MiB', async (t) => {
      const { batch, all, id } = await newDesk(server);
      for (const count of [0, 1_001]) {
        const refused = await batch(Array.from({ length: count }, (_, n) => [`${n}`]));
        checkRefusal(t, refused, 400, `${count} items`);
        t.match(refused.json.error.message, /^items .*1 to 1000/);
      }
      const items = (count: number) =>
        Array.from({ length: count }, (_, n) => [`${n}`, { input: 'x'.repeat(262_142) }] as const);
      checkRefusal(t, await batch(items(33)), 413, 'too large');
      t.same(await all(), { items: [], ids: [], stored: [] });
      t.equal((await batch(items(31))).status, 200);
      checkRefusal(t, await desk(server, 'env_unknown').batch([['a']]), 404, 'no such environment');
      const path = `/control/v1/environments/${id}/work/batch`;
      for (const body of [{}, { items: {} }, [], { items: [1] }]) {
        checkRefusal(t, await server.call('POST', path, { as: OPERATOR_KEY, body }), 400, JSON.stringify(body));
      }
    });
  });
}
