import t from 'tap';
import { desk, newDesk } from '../support/desk.ts';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { newPlace, sessionsTokenOf } from '../support/places.ts';
import { settingsOf } from '../support/settings.ts';
import { checkRefusal } from '../support/wire.ts';

/** As they stand in a body, and come back. */
const INPUTS = [
  ...['null', 'true', 'false', '0', '-1.5', '1e+300', '9007199254740991', '0.1', '5e-324', '""', '[]', '{}'],
  ...['"null"', '"\\\\u0000"', '"\\"\\\\"', '"é😀\u2028\u00a0"', '"\\u0001\\n"', '[[[]],[null,"",0,false]]'],
  ...['{"b":1,"a":{"":[{"c":null}]}}', '{"__proto__":{"x":1},"constructor":2,"toJSON":3}', '{"2":0,"x":{"length":9}}'],
  `"${'x'.repeat(262_142)}"`,
  `"${'é'.repeat(131_071)}"`,
  `${'['.repeat(1_000)}${']'.repeat(1_000)}`,
];

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });

    t.test('an input is read back as it was sent, and shows nowhere else', async (t) => {
      const { id: environment, input, get } = await newDesk(server);
      const path = `/control/v1/environments/${environment}/work`;
      const headers = { 'content-type': 'application/json' };
      for (const [n, text] of INPUTS.entries()) {
        const raw = `{"data":{"type":"session","id":"${n}"},"input":${text}}`;
        const keyed = { ...headers, 'idempotency-key': `${environment} ${n}` };
        const { status, json } = await server.call('POST', path, { as: OPERATOR_KEY, raw, headers: keyed });
        t.equal(status, 201, `input ${n}`);
        const read = await input(json.id);
        t.ok(
          read.text.startsWith(`{"input":${text},"kind":"tool_exec",`),
          `input ${n}: ${read.text.length} characters`,
        );
        t.notOk('input' in json);
      }
      t.notOk((await get('?limit=1000')).json.data.some((work: object) => 'input' in work));
    });

    t.test('without an input it is null; one that JSON cannot hold is refused', async (t) => {
      const { id: environment, enqueue, input, items } = await newDesk(server);
      const { seq, ...given } = (await input((await enqueue('session')).json.id)).json;
      t.match(seq, /^[1-9]\d*$/);
      t.same(given, {
        ...{ input: null, kind: 'tool_exec', attempt: 1, max_attempts: 25, is_reclaimed: false, trace_context: null },
      });
      const path = `/control/v1/environments/${environment}/work`;
      for (const text of ['1e999', '{"a":[1,-1e999]}', `"${'é'.repeat(131_072)}"`]) {
        const raw = `{"data":{"type":"session","id":"refused"},"input":${text}}`;
        const refused = await server.call('POST', path, {
          as: OPERATOR_KEY,
          raw,
          headers: { 'content-type': 'application/json' },
        });
        checkRefusal(t, refused, 400, text.slice(0, 30));
        t.match(refused.json.error.message, /^input /);
      }
      t.equal((await items()).length, 1);
    });

    t.test('an input that nests deeper than 1,000 levels is refused, however deep', async (t) => {
      const { id: environment, items } = await newDesk(server);
      const path = `/control/v1/environments/${environment}/work`;
      // Around what the stack bears in one place and not in another, and far beyond.
      for (const levels of [1_001, ...Array.from({ length: 150 }, (_, n) => 4_280 + n), 100_000]) {
        const raw = `{"data":{"type":"session","id":"nested"},"input":${'['.repeat(levels)}${']'.repeat(levels)}}`;
        const headers = { 'content-type': 'application/json' };
        const { status, json } = await server.call('POST', path, { as: OPERATOR_KEY, raw, headers });
        const { message } = json.error;
        t.match({ status, message }, { status: 400, message: 'input must nest at most 1000 levels deep' }, `${levels}`);
      }
      t.same(await items(), []);
    });

    t.test('API keys and the item’s own token read it, environment keys and others’ tokens do not', async (t) => {
      const [here, there] = [await newDesk(server), await newPlace(server)];
      const { id } = (await here.enqueue('session', { input: { n: 1 } })).json;
      const own = sessionsTokenOf(await here.poll());
      await here.enqueue('neighbour', { input: 'not yours' });
      const neighbours = sessionsTokenOf(await here.poll());
      await there.enqueue();
      const strangers = sessionsTokenOf(await there.poll());
      for (const key of [OPERATOR_KEY, own])
        t.match(await here.input(id, key), { status: 200, json: { input: { n: 1 } } });
      checkRefusal(
        t,
        await desk(server, server.environment.id).input(id, server.environmentKey),
        403,
        'an environment key',
      );
      checkRefusal(t, await here.input(id, server.environmentKey), 401, "another environment's key");
      for (const token of [neighbours, strangers]) checkRefusal(t, await here.input(id, token), 403, 'another token');
      checkRefusal(t, await here.input('work_unknown'), 404, 'no such item');
      checkRefusal(t, await desk(server, there.environment.id).input(id), 404, 'in another environment');

      await here.forceStop(id);
      t.equal((await here.input(id, own)).status, 200, 'also when it has ended');
    });

    t.test('a superseded id is 404, and only an API key is told the present one', async (t) => {
      const { enqueue, poll, input } = await newDesk(server);
      const { id: old } = (await enqueue('session', { input: 'kept' })).json;
      const token = sessionsTokenOf(await poll());
      const { seq } = (await input(old, token)).json;
      await lapse(server.database, old);
      const again = await poll();
      const { id } = again.json;
      const [late, operator] = [await input(old, token), await input(old)];
      for (const answer of [late, operator]) checkRefusal(t, answer, 404, 'superseded');
      t.match(operator.json.error.details, { error_code: 'work_superseded', work_id: id });
      t.notMatch(late.text, id);
      checkRefusal(t, await input(id, token), 403, 'the old token for the new id');
      t.match((await input(id, sessionsTokenOf(again))).json, { seq, input: 'kept', is_reclaimed: false });
    });

    t.test('of what lapsed and how often it may fail, an item is told its own and not its neighbours’', async (t) => {
      const [here, there] = [await newDesk(server), await newDesk(server)];
      await settingsOf(server, there.id).change({ max_attempts: 7 });
      await here.enqueue('session');
      const begun = (await here.poll()).json.id;
      await here.ack(begun);
      await lapse(server.database, begun);
      const { id } = (await here.poll()).json;
      const neighbour = (await here.enqueue('neighbour')).json.id;
      const elsewhere = (await there.enqueue('elsewhere')).json.id;
      t.match((await here.input(id)).json, { is_reclaimed: true, max_attempts: 25 });
      t.match((await here.input(neighbour)).json, { is_reclaimed: false, max_attempts: 25 });
      t.match((await there.input(elsewhere)).json, { is_reclaimed: false, max_attempts: 7 });
    });
  });
}
