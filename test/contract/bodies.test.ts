import t from 'tap';
import { ENGINES, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

const EMOJI = '\u{1f680}'; // one character, two UTF-16 units
const COMBINED = 'e\u0301'; // one grapheme, two characters

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const { call, work, enqueue, database, environment } = await testServer(t, { engine });
    const at = `/control/v1/environments/${environment.id}`;
    const session = (id: unknown, more: object = {}) => ({ data: { type: 'session', id }, ...more });
    const texts = [
      { what: 'a session id', field: 'data.id', path: `${at}/work`, body: session, max: 256, made: 201 },
      {
        what: "a key's name",
        field: 'name',
        path: `${at}/keys`,
        body: (name: unknown) => ({ name }),
        max: 128,
        made: 201,
      },
      {
        what: "an environment's name",
        field: 'name',
        path: '/v1/environments',
        body: (name: unknown) => ({ name }),
        max: 128,
        made: 200,
      },
    ];
    for (const { what, field, path, body, max, made } of texts) {
      t.test(`${what} is text of 1 to ${max} characters, not UTF-16 units or graphemes`, async (t) => {
        const wrong = [
          undefined,
          null,
          5,
          true,
          ['a'],
          {},
          '',
          'x'.repeat(max + 1),
          EMOJI.repeat(max + 1),
          COMBINED.repeat(max / 2 + 1),
        ];
        for (const value of wrong) {
          const answer = await call('POST', path, { as: OPERATOR_KEY, body: body(value) });
          const shown = `${JSON.stringify(value)}`.slice(0, 20);
          checkRefusal(t, answer, 400, shown);
          t.match(answer.json.error.message, field, `${shown}: named`);
          t.match(answer.json.error.message, `1 to ${max}`, `${shown}: its range`);
        }
        for (const value of [
          'x',
          'y'.repeat(max),
          EMOJI.repeat(max),
          COMBINED.repeat(max / 2),
          '5',
          "'; --",
          'a\nb',
          '\u2028',
        ]) {
          const { status, json } = await call('POST', path, { as: OPERATOR_KEY, body: body(value) });
          t.equal(status, made, value.slice(0, 9));
          t.equal(json.data?.id ?? json.name, value, 'given back as it came');
        }
      });
    }

    t.test('a body of ours is refused for a field that is wrong, missing or unknown', async (t) => {
      const cases: readonly (readonly [string, unknown, RegExp])[] = [
        [`${at}/work`, undefined, /body.*object/],
        [`${at}/work`, null, /body.*object/],
        [`${at}/work`, [], /data/],
        [`${at}/work`, 'x', /body.*object/],
        [`${at}/work`, {}, /data.*object/],
        [`${at}/work`, { data: null }, /data.*object/],
        [`${at}/work`, { data: { id: 'x' } }, /data\.type.*session/],
        [`${at}/work`, { data: { type: 'Session', id: 'x' } }, /data\.type.*session/],
        [`${at}/work`, { data: { type: 'session' } }, /data\.id/],
        [`${at}/work`, session('x', { metadata: null }), /metadata.*object/],
        [`${at}/work`, session('x', { metadata: { a: 5 } }), /metadata\.a.*string/],
        [`${at}/work`, session('x', { metadata: { a: null } }), /metadata\.a.*string/],
        [`${at}/work`, session('x', { metadata: { a: 'x'.repeat(513) } }), /metadata\.a.*512/],
        [`${at}/work`, session('x', { priority: 'high' }), /priority/],
        [`${at}/work`, session('x', { unheard_of: 1 }), /unheard_of/],
        [`${at}/work`, { data: { type: 'session', id: 'x', unheard_of: 1 } }, /data\.unheard_of/],
        [`${at}/keys`, undefined, /body.*object/],
        [`${at}/keys`, { name: 'x', unheard_of: 1 }, /unheard_of/],
        ['/v1/environments', undefined, /body.*object/],
        ['/v1/environments', { name: 'x', description: 5 }, /description/],
        ['/v1/environments', { name: 'x', config: 'cloud' }, /config.*object/],
        ['/v1/environments', { name: 'x', config: {} }, /config\.type.*self_hosted, cloud/],
        ['/v1/environments', { name: 'x', config: { type: 'hybrid' } }, /config\.type.*self_hosted, cloud/],
        ['/v1/environments', { name: 'x', metadata: { a: 5 } }, /metadata\.a.*string/],
        ['/v1/environments', { name: 'x', metadata: { '': 'x' } }, /metadata.*1 to 64/],
      ];
      for (const [path, body, message] of cases) {
        const answer = await call('POST', path, { as: OPERATOR_KEY, body });
        const what = `${path} ${JSON.stringify(body)?.slice(0, 60)}`;
        checkRefusal(t, answer, 400, what);
        t.match(answer.json.error.message, message, what);
      }
    });

    const patch = (id: string, metadata: unknown) => call('POST', work(`/${id}`), { body: { metadata } });
    const filled = (pairs: number, value = 'v') =>
      Object.fromEntries(Array.from({ length: pairs }, (_, n) => [`k${n}`, value]));
    let count = 0;
    const item = (metadata: Record<string, string>) => enqueue(`patched ${count++}`, metadata);

    t.test('a patch sets what it names, deletes what it names null, and keeps the rest', async (t) => {
      const id = await item({ kept: 'k', replaced: 'old', deleted: 'd', emptied: 'e' });
      const { status, json } = await patch(id, {
        replaced: 'new',
        deleted: null,
        emptied: '',
        added: 'a',
        unheard_of: null,
      });
      t.equal(status, 200);
      t.strictSame(json.metadata, { kept: 'k', replaced: 'new', emptied: '', added: 'a' });
      t.strictSame((await call('GET', work(`/${id}`))).json, json, 'and it is stored so');
    });

    t.test('an empty patch changes nothing', async (t) => {
      const id = await item({ a: '1' });
      const before = await rowOf(database, id);
      t.strictSame((await patch(id, {})).json.metadata, { a: '1' });
      t.strictSame(await rowOf(database, id), before);
    });

    t.test(
      'the limits hold for the merged result: 16 pairs, keys of 1 to 64, values of at most 512 characters',
      async (t) => {
        const id = await item(filled(15));
        const long = { [EMOJI.repeat(64)]: EMOJI.repeat(512) };
        t.equal((await patch(id, long)).status, 200, 'the sixteenth, at every limit, counted in characters');
        t.equal((await patch(id, { k0: null, seventeenth: 'x' })).status, 200, 'one goes, one comes');
        t.equal((await patch(id, { k1: 'replaced' })).status, 200, 'a full one may be changed');
        const before = await rowOf(database, id);
        const refused: readonly (readonly [unknown, readonly RegExp[]])[] = [
          [{ another: 'x' }, [/16 pairs/]],
          [{ k1: null, a: 'x', b: 'y' }, [/16 pairs/]],
          [{ '': 'x', k1: null }, [/1 to 64/]],
          [{ ['x'.repeat(65)]: 'x', k1: null }, [/1 to 64/]],
          [{ [EMOJI.repeat(65)]: 'x', k1: null }, [/1 to 64/]],
          [{ k1: 'x'.repeat(513) }, [/k1.*512/]],
          [{ k1: EMOJI.repeat(513) }, [/k1.*512/]],
          [{ k1: 'x'.repeat(513), k2: 'x'.repeat(513), '': 'x' }, [/k1.*512/, /k2.*512/, /1 to 64/, /16 pairs/]],
          [{ new1: 'x'.repeat(513), new2: 'y' }, [/new1.*512/, /16 pairs/]],
        ];
        for (const [metadata, problems] of refused) {
          const answer = await patch(id, metadata);
          const what = JSON.stringify(metadata).slice(0, 40);
          checkRefusal(t, answer, 400, what);
          t.equal(answer.json.error.details.error_code, 'invalid_metadata', what);
          for (const problem of problems)
            t.match(answer.json.error.message, problem, `${what}: every problem is listed`);
        }
        t.strictSame(await rowOf(database, id), before, 'the row is as it was');
      },
    );

    t.test('enqueue and environments hold metadata to the same limits, and list every problem', async (t) => {
      const wrong = { ...filled(17), k0: 'x'.repeat(513), ['x'.repeat(65)]: 'x' };
      for (const [path, body] of [
        [`${at}/work`, session('limits')],
        ['/v1/environments', { name: 'limits' }],
      ] as const) {
        const send = (metadata: unknown) => call('POST', path, { as: OPERATOR_KEY, body: { ...body, metadata } });
        const answer = await send(wrong);
        checkRefusal(t, answer, 400, path);
        t.equal(answer.json.error.details.error_code, 'invalid_metadata', path);
        for (const problem of [/k0.*512/, /1 to 64/, /16 pairs/]) t.match(answer.json.error.message, problem, path);
        t.strictSame((await send(filled(16, EMOJI.repeat(512)))).json.metadata, filled(16, EMOJI.repeat(512)), path);
      }
    });

    t.test('what is no metadata is 400 and leaves the row as it was', async (t) => {
      const id = await item({ a: '1' });
      const before = await rowOf(database, id);
      const bodies: unknown[] = [undefined, null, [], 'x', {}, { Metadata: {} }, { metadata: 'x' }, { metadata: 5 }];
      for (const metadata of [null, [], ['a'], true]) bodies.push({ metadata });
      for (const value of [5, true, [], {}, ['x']]) bodies.push({ metadata: { good: 'x', a: value } });
      for (const body of bodies) {
        const answer = await call('POST', work(`/${id}`), { body });
        checkRefusal(t, answer, 400, JSON.stringify(body));
        t.match(answer.json.error.message, /metadata|body/, `${JSON.stringify(body)}: named`);
      }
      t.strictSame(await rowOf(database, id), before);
    });

    t.test('names that mean something to JavaScript or SQL are plain keys', async (t) => {
      const keys = [
        '__proto__',
        'constructor',
        'prototype',
        'toString',
        'hasOwnProperty',
        'a\nb',
        '\u2028',
        "'; --",
        '{}',
        '0',
        ' ',
        '"',
        '\\',
      ];
      const pairs = Object.fromEntries(keys.map((key) => [key, `${key}!`]));
      const has = (json: { metadata: object }, what: string) =>
        t.strictSame(Object.entries(json.metadata).sort(), Object.entries(pairs).sort(), what);
      const created = await call('POST', `${at}/work`, {
        as: OPERATOR_KEY,
        body: session('plain keys', { metadata: pairs }),
      });
      has(created.json, 'enqueue');
      const id = await item({});
      has((await patch(id, pairs)).json, 'patch');
      has((await call('GET', work(`/${id}`))).json, 'retrieve');
      has((await call('GET', work('?limit=1'))).json.data[0], 'list');
      has((await call('POST', work(`/${id}/ack`))).json, 'ack');
      const nulls = Object.fromEntries(keys.map((key) => [key, null]));
      t.strictSame((await patch(id, nulls)).json.metadata, {}, 'and can be deleted');
    });

    t.test('a body may nest as it likes: what is not ours is not looked at, and never a 500', async (t) => {
      const nested = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
      const headers = { 'content-type': 'application/json' };
      const id = await item({ kept: 'yes' });
      const patched = await call('POST', work(`/${id}`), { headers, raw: `{"metadata":{},"x":${nested}}` });
      t.match(patched, { status: 200, json: { metadata: { kept: 'yes' } } });
      t.equal((await call('POST', work(`/${id}`), { headers, raw: `{"metadata":${nested}}` })).status, 400);
      t.equal((await call('POST', work(`/${id}/stop`), { headers, raw: `{"x":${nested}}` })).status, 204);
      const created = { headers, as: OPERATOR_KEY, raw: `{"name":"nested","x":${nested}}` };
      t.equal((await call('POST', '/v1/environments', created)).status, 200);
    });

    t.test('an item may be patched in any state, and stays in it', async (t) => {
      const id = await item({});
      const steps = [
        ['queued', ''],
        ['starting', '/ack'],
        ['active', '/heartbeat?expected_last_heartbeat=NO_HEARTBEAT'],
        ['stopping', '/stop'],
        ['stopped', '/stop'],
      ] as const;
      for (const [state, path] of steps) {
        if (path !== '')
          await call('POST', work(`/${id}${path}`), { body: state === 'stopped' ? { force: true } : undefined });
        const before = await rowOf(database, id);
        const { json } = await patch(id, { seen: state });
        t.equal(json.state, state);
        t.equal(json.metadata.seen, state);
        t.strictSame(
          { ...(await rowOf(database, id)), metadata: before.metadata },
          before,
          'only the metadata changed',
        );
      }
    });
  });
}
