import { sql } from 'kysely';
import t from 'tap';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { INTERRUPT, MESSAGE, path, relayPlace, SAID, TOOL } from '../support/sessions.ts';
import { checkRefusal } from '../support/wire.ts';

type Page = { data: { id: string; type: string; content: { text: string }[] }[]; next_page: string | null };

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const place = await relayPlace(server);
    const id = await place.session();
    const neighbour = await place.session();
    await place.append(neighbour, MESSAGE, TOOL);
    for (let n = 0; n < 3; n++) await place.append(id, MESSAGE, TOOL, SAID);
    const page = async (at: string, query: string): Promise<Page> => {
      const answer = await call('GET', path(at, `/events?${query}`), { as: place.key });
      if (answer.status !== 200) throw new Error(answer.text);
      return answer.json;
    };
    const walk = async (at: string, query: string, from = ''): Promise<Page['data'][]> => {
      const pages: Page['data'][] = [];
      for (let next: string | null = from; next !== null; ) {
        const { data, next_page: after }: Page = await page(at, `${query}${next && `&page=${next}`}`);
        pages.push(data);
        next = after;
      }
      return pages;
    };
    const ids = (events: Page['data']) => events.map((event) => event.id);
    const all = (await page(id, 'limit=1000')).data;

    t.test('pages of any size hold each event once, in either order', async (t) => {
      t.strictSame(
        all.map(({ type }) => type),
        Array(3).fill(['user.message', 'agent.tool_use', 'agent.message', 'session.status_idle']).flat(),
      );
      for (const limit of [1, 2, 3, 5, 11, 12, 13]) {
        for (const order of ['asc', 'desc']) {
          const pages = await walk(id, `limit=${limit}&order=${order}`);
          t.strictSame(pages.flat(), order === 'asc' ? all : all.toReversed(), `${limit} ${order}`);
          t.equal(pages.length, Math.ceil(12 / limit), 'and none is empty');
        }
      }
      const fresh = await place.session();
      t.strictSame(await page(fresh, ''), { data: [], next_page: null });
      await place.append(fresh, ...Array(25).fill(MESSAGE));
      t.equal((await page(fresh, '')).data.length, 20, 'twenty unless told otherwise');
    });

    t.test('a page goes on where it was: what is appended meanwhile comes at the end', async (t) => {
      const at = await place.session();
      await place.append(at, MESSAGE, MESSAGE);
      const first = await page(at, 'limit=2');
      t.ok(first.next_page, 'its status');
      const [late] = await place.append(at, INTERRUPT);
      const rest = await walk(at, 'limit=1', first.next_page ?? '');
      t.strictSame(
        rest.flat().map(({ type }) => type),
        ['session.status_running', 'user.interrupt', 'session.status_idle'],
      );
      t.equal(rest[1]?.[0]?.id, late.id);
    });

    t.test('types are any that are named, also ones that are never stored', async (t) => {
      const of = (...types: string[]) => ids(all.filter(({ type }) => types.includes(type)));
      for (const [query, types] of [
        ['types=user.message', ['user.message']],
        ['types[]=user.message&types[]=agent.tool_use', ['user.message', 'agent.tool_use']],
        ['types%5B%5D=agent.message&types=session.status_idle', ['agent.message', 'session.status_idle']],
        ['types=agent.thinking', []],
        ['types=agent.thinking&types=agent.message', ['agent.message']],
        ["types=user.message'", []],
      ] as const) {
        t.strictSame(
          (await walk(id, `${query}&limit=2`)).flat().map((event) => event.id),
          of(...types),
          query,
        );
      }
    });

    t.test('instants bound what is listed, to the microsecond', async (t) => {
      const { sessionEvents } = database.names;
      // One microsecond apart: a Date would not tell them.
      await database.rows(
        sql`update ${sessionEvents} set processed_at = '2026-01-01T00:00:00Z'::timestamptz + seq * interval '1 microsecond' where session_id = ${id}`,
      );
      const instant = (seq: number) => `2026-01-01T00:00:00.${String(seq).padStart(6, '0')}Z`;
      for (const [query, from, to] of [
        [`created_at[gt]=${instant(3)}`, 3, 12],
        [`created_at[gte]=${instant(3)}`, 2, 12],
        [`created_at[lt]=${instant(3)}`, 0, 2],
        [`created_at[lte]=${instant(3)}`, 0, 3],
        [`created_at[gt]=${instant(3)}&created_at[lte]=${instant(9)}`, 3, 9],
        ['created_at[gte]=2026-01-01T01:00:00.000003%2B01:00', 2, 12],
        [`created_at[gt]=${instant(12)}`, 12, 12],
      ] as const) {
        t.strictSame(
          (await walk(id, `${query}&limit=4`)).flat().map((event) => event.id),
          ids(all.slice(from, to)),
          query,
        );
        const desc = (await walk(id, `${query}&limit=4&order=desc`)).flat();
        t.strictSame(ids(desc), ids(all.slice(from, to)).toReversed(), `${query}, newest first`);
      }
    });

    t.test('a page is bounded by its bytes: it is short then, but nothing is lost or met twice', async (t) => {
      const at = await place.session();
      const large = { type: 'user.message', content: [{ type: 'text', text: 'x'.repeat(5 * 1_048_576) }] };
      const huge = { type: 'user.message', content: [{ type: 'text', text: 'y'.repeat(9 * 1_048_576) }] };
      const sent = [MESSAGE, large, large, MESSAGE, huge, MESSAGE, large];
      const appended: string[] = [];
      for (const event of sent) appended.push((await place.append(at, event))[0].id);
      for (const order of ['asc', 'desc']) {
        const pages = await walk(at, `types=user.message&order=${order}&limit=1000`);
        t.strictSame(ids(pages.flat()), order === 'asc' ? appended : appended.toReversed(), order);
        const bytes = pages.map((events) => JSON.stringify(events).length);
        for (const [index, size] of bytes.entries()) {
          t.ok(size < 8_400_000 || pages[index]?.length === 1, `${size} bytes of ${pages[index]?.length}`);
        }
        const lengths = order === 'asc' ? [2, 2, 1, 2] : [2, 1, 2, 2];
        t.strictSame(
          pages.map(({ length }) => length),
          lengths,
          'as many as fit',
        );
      }
      const texts = (await walk(at, 'types=user.message&limit=2')).flat().map(({ content }) => content[0]?.text.length);
      t.strictSame(
        texts,
        sent.map(({ content }) => content[0]?.text.length),
        'whole',
      );
    });

    t.test('what is malformed is refused by its name', async (t) => {
      const cursor = (text: string) => Buffer.from(text).toString('base64url');
      const { next_page: sessionsPage } = (await call('GET', '/v1/sessions?limit=1', { as: OPERATOR_KEY })).json;
      const refusals = {
        limit: ['0', '1001', '-1', '1e2', '', '2.0', '%202'],
        order: ['', 'ASC', 'up'],
        page: [
          '',
          'x',
          sessionsPage,
          cursor('2000-01-01T00:00:00.000000Z 0'),
          cursor('2000-01-01T00:00:00.000000Z 1e3'),
          cursor('x'.repeat(300)),
          '%00',
        ],
        types: ['', 'x'.repeat(65), '%00'],
        'types[]': ['', '%00'],
        'created_at[gt]': ['', 'yesterday', '2026-01-01', '2026-13-01T00:00:00Z', '%00'],
        'created_at[gte]': ['2026-01-01T00:00:00'],
        'created_at[lt]': ['1'],
        'created_at[lte]': ['2026-02-30T00:00:00Z'],
      };
      for (const [name, values] of Object.entries(refusals)) {
        for (const value of values) {
          const answer = await call('GET', path(id, `/events?${name}=${value}`), { as: place.key });
          checkRefusal(t, answer, 400, `${name}=${value}`);
          const told = answer.json.error.message;
          t.ok(told.startsWith(`${name} must`) || told.startsWith(`${name}.0 must`), `${name}=${value}`);
        }
      }
      checkRefusal(t, await call('GET', path(id, '/events?limit=1&limit=2'), { as: place.key }), 400, 'twice');
      t.equal((await page(id, 'beta=true&unknown=1')).data.length, 12, 'what is not known is ignored');
      checkRefusal(t, await call('GET', path('sesn_nobody', '/events'), { as: OPERATOR_KEY }), 404, 'no such session');
    });
  });
}
