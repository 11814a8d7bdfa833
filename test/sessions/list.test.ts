import { sql } from 'kysely';
import t from 'tap';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { MESSAGE, path, relayPlace, TOOL } from '../support/sessions.ts';
import { checkRefusal } from '../support/wire.ts';

const nested = (levels: number) => JSON.parse(`${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`);

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const place = await relayPlace(server);
    const page = async (query: string, as: string = OPERATOR_KEY) =>
      (await call('GET', `/v1/sessions?${query}`, { as })).json;
    const ids = async (query: string, as?: string): Promise<string[]> =>
      (await page(query, as)).data.map(({ id }: { id: string }) => id);
    const made: string[] = [];
    for (let n = 0; n < 5; n++) made.push(await place.session({ agent: { id: `agent_${n % 2}` } }));
    // Two of one instant: their order is still one order, and a page may end between them.
    const { sessions } = database.names;
    const older = `(select created_at from "${database.schema}"."sessions" where id = '${made[1]}')`;
    await database.rows(sql`update ${sessions} set created_at = ${sql.raw(older)} where id = ${made[2]}`);
    const [first = '', , , , last = ''] = made;
    const twins = [made[1] ?? '', made[2] ?? ''].sort();
    const ascending = [first, ...twins, made[3] ?? '', last];
    const createdAt = async (id: string) => (await call('GET', path(id), { as: OPERATOR_KEY })).json.created_at;

    t.test('pages go both ways, in both orders, and meet nothing twice', async (t) => {
      t.strictSame(await ids(''), ascending.toReversed(), 'newest first unless told otherwise');
      for (const order of ['asc', 'desc']) {
        for (const limit of [1, 2, 3]) {
          const forth: string[][] = [];
          const back: string[][] = [];
          let at = await page(`order=${order}&limit=${limit}`);
          t.equal(at.prev_page, null);
          for (; ; at = await page(`order=${order}&limit=${limit}&page=${at.next_page}`)) {
            forth.push(at.data.map(({ id }: { id: string }) => id));
            if (at.next_page === null) break;
          }
          t.strictSame(forth.flat(), order === 'asc' ? ascending : ascending.toReversed(), `${order} ${limit}`);
          t.ok(
            forth.every(({ length }) => length > 0),
            'no empty page',
          );
          for (; at.prev_page !== null; ) {
            at = await page(`order=${order}&limit=${limit}&page=${at.prev_page}`);
            back.unshift(at.data.map(({ id }: { id: string }) => id));
            t.ok(at.next_page, 'there is a way back');
          }
          t.strictSame(back, forth.slice(0, -1), `${order} ${limit}, back`);
        }
      }
    });

    t.test('a page goes on where it was, whatever is made or deleted meanwhile', async (t) => {
      const at = await page('order=asc&limit=4');
      const late = await place.session();
      t.strictSame(await ids(`order=asc&page=${at.next_page}`), [last, late]);
      const newest = await page('limit=1');
      await call('DELETE', path(late), { as: OPERATOR_KEY });
      t.strictSame(
        await ids(`limit=2&page=${newest.next_page}`),
        ascending.toReversed().slice(0, 2),
        'its end is gone',
      );
    });

    t.test('filters take what they name, together', async (t) => {
      const middle = await createdAt(made[1] ?? '');
      t.strictSame(await ids(`order=asc&created_at[lt]=${middle}`), [first]);
      t.strictSame(await ids(`order=asc&created_at[lte]=${middle}`), [first, ...twins]);
      t.strictSame(await ids(`order=asc&created_at[gt]=${middle}`), ascending.slice(3));
      t.strictSame(
        await ids(`order=asc&created_at%5Bgte%5D=${middle}&created_at[lt]=${await createdAt(last)}`),
        ascending.slice(1, 4),
      );
      t.strictSame(await ids('order=asc&agent_id=agent_1'), [made[1], made[3]]);
      t.strictSame(await ids('agent_id=nobody'), []);
      await place.append(first, MESSAGE);
      t.strictSame(await ids('statuses[]=running'), [first]);
      t.strictSame(await ids('statuses=running&agent_id=agent_1'), []);
      t.strictSame(await ids('order=asc&statuses[]=running&statuses[]=idle'), ascending);
      t.strictSame(await ids('order=asc&statuses=idle'), ascending.slice(1));
      t.strictSame(await ids('statuses=rescheduling'), []);
      t.strictSame(await ids('order=asc&deployment_id=x&beta=true'), ascending, 'what is not known is ignored');
    });

    t.test('an agent is found by the id that its session reads', async (t) => {
      const id = await place.session();
      const { agent } = (await call('GET', path(id), { as: OPERATOR_KEY })).json;
      t.strictSame(await ids(`agent_id=${agent.id}`), [id]);
      await call('DELETE', path(id), { as: OPERATOR_KEY });
    });

    t.test("an agent that nests as deep as it may is in nobody's way", async (t) => {
      const id = await place.session({ agent: { id: 'deep', description: 'a\\u0000', own: nested(999) } });
      t.strictSame(await ids('agent_id=deep'), [id]);
      t.strictSame(await ids('order=asc&agent_id=agent_1'), [made[1], made[3]]);
      await call('DELETE', path(id), { as: OPERATOR_KEY });
    });

    t.test('the archived are listed where they are asked for', async (t) => {
      const id = await place.session();
      await call('POST', path(id, '/archive'), { as: OPERATOR_KEY });
      t.strictSame(await ids('order=asc'), ascending);
      t.strictSame(await ids('order=asc&include_archived=false'), ascending);
      t.strictSame(await ids('order=asc&include_archived=true'), [...ascending, id]);
      t.strictSame(await ids('include_archived=true&statuses=terminated'), [id]);
      t.strictSame(await ids('statuses=terminated'), []);
    });

    t.test('a worker lists the sessions of its environment, and no others', async (t) => {
      const elsewhere = await relayPlace(server);
      const id = await elsewhere.session();
      t.strictSame(await ids('', elsewhere.key), [id]);
      t.strictSame(await ids('order=asc', place.key), ascending);
      await elsewhere.append(id, TOOL);
      const { token } = await elsewhere.work();
      checkRefusal(t, await call('GET', '/v1/sessions', { as: token }), 403, 'a sessions token');
      checkRefusal(t, await call('GET', '/v1/sessions', { as: null }), 401, 'nobody');
    });

    t.test('what is malformed is refused by its name', async (t) => {
      const foreign = Buffer.from('2026-01-01T00:00:00.000000Z 5').toString('base64url');
      const impossible = Buffer.from(`2026-02-30T00:00:00.000000Z next:${first}`).toString('base64url');
      const refusals = {
        limit: ['0', '1001', '1e2', '%205', '-1', ''],
        page: ['', 'x', foreign, impossible, 'a'.repeat(257), '%00'],
        order: ['', 'ASC', 'up'],
        include_archived: ['1', 'yes', ''],
        agent_id: ['', '%00', 'x'.repeat(129)],
        statuses: ['', 'archived'],
        'statuses[]': ['terminated2'],
        'created_at[gt]': ['', 'now', '2026-02-30T00:00:00Z', '2026-01-01T00:00:00', '2026-01-01'],
        'created_at[lte]': ['0000-01-01T00:00:00Z', '%00'],
      };
      for (const [name, values] of Object.entries(refusals)) {
        for (const value of values) {
          const answer = await call('GET', `/v1/sessions?${name}=${value}`, { as: OPERATOR_KEY });
          checkRefusal(t, answer, 400, `${name}=${value}`);
          t.ok(answer.json.error.message.startsWith(`${name} must`), answer.json.error.message);
        }
      }
      checkRefusal(t, await call('GET', '/v1/sessions?limit=1&limit=2', { as: OPERATOR_KEY }), 400, 'twice');
    });
  });
}
