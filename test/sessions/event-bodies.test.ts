import t from 'tap';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { everything, MESSAGE, path, relayPlace, result, TOOL, text } from '../support/sessions.ts';
import { checkRefusal, exchange, head } from '../support/wire.ts';

const MIB = 1_048_576;
const JSON_TYPE = { 'content-type': 'application/json' };

/** A body of exactly so many bytes, one event whose text fills it. */
function bodyOf(bytes: number, event: object): string {
  const empty = JSON.stringify({ events: [{ ...event, content: text('') }] });
  return empty.replace('"text":""', `"text":"${'x'.repeat(bytes - empty.length)}"`);
}

/** Not tap's comparison: it knows no key called __proto__. */
const canonical = (event: object) => JSON.stringify(Object.entries(event).sort());

/** What JSON can say and a careless program would change. */
const VALUES = [
  ['nothing', '{}'],
  ['proto', '{"__proto__":{"admin":true},"constructor":{"prototype":1},"hasOwnProperty":0}'],
  ['numbers', '{"a":0.1,"b":1e21,"c":-1.5e-9,"d":9007199254740991,"e":123456789.125,"f":0}'],
  ['texts', '{"a":"\\u0001\\u001f\\u007f\\u2028","b":"\\"\\\\/","c":"\u{1F600}é漢","d":""}'],
  ['order', '{"z":1,"a":2,"m":{"y":1,"b":[3,2,1]}}'],
  ['nulls', '{"a":null,"b":[null,true,false,[],{}]}'],
  ['own fields', '{"id":"mine","type":"mine","processed_at":"never","seq":1}'],
] as const;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const place = await relayPlace(server);
    const post = (
      id: string,
      raw: string | Buffer,
      as: string | null = OPERATOR_KEY,
      headers: Record<string, string> = JSON_TYPE,
    ) => call('POST', path(id, '/events'), { as, raw, headers });

    t.test('whatever a tool printed is taken as its result: what no text may hold becomes U+FFFD', async (t) => {
      for (const [printed, kept] of [
        ['a\\u0000b', 'a\uFFFDb'],
        ['\\udc00 and \\ud800', '\uFFFD and \uFFFD'],
        ['\u{1F600} stays', '\u{1F600} stays'],
      ]) {
        const id = await place.session();
        const callId = await place.tool(id);
        const block = `{"type":"text","text":"${printed}","deep":[{"a":"${printed}"}]}`;
        const answer = await post(
          id,
          `{"events":[{"type":"user.tool_result","tool_use_id":"${callId}","content":[${block}]}]}`,
          place.key,
        );
        t.equal(answer.status, 200);
        t.strictSame(answer.json.data[0].content, [{ type: 'text', text: kept, deep: [{ a: kept }] }]);
        t.strictSame(
          (await place.events(id)).find(({ type }) => type === 'user.tool_result').content,
          answer.json.data[0].content,
        );
      }
    });

    t.test('what is answered and listed is what was sent', async (t) => {
      const id = await place.session();
      for (const [name, input] of VALUES) {
        const raw = `{"events":[{"type":"agent.tool_use","name":"bash","input":${input}}]}`;
        const answer = await post(id, raw);
        t.equal(answer.status, 200, name);
        const sent = JSON.parse(input);
        const expected = JSON.stringify(sent);
        const [event] = answer.json.data;
        t.equal(JSON.stringify(event.input), expected, `${name}, answered`);
        const listed = await call('GET', path(id, '/events?types=agent.tool_use&order=desc&limit=1'), {
          as: place.key,
        });
        t.ok(listed.text.includes(`"input":${expected}`), `${name}, byte for byte`);
        t.equal(canonical(listed.json.data[0]), canonical(event));
        t.match(event, { id: /^sevt_[\w-]{24}$/, type: 'agent.tool_use', name: 'bash', processed_at: /\.\d{6}Z$/ });
        await place.answer(id, {
          type: 'user.tool_result',
          tool_use_id: event.id,
          content: [{ type: 'text', text: '', own: sent }],
        });
        const [given] = (await place.events(id, '&types=user.tool_result&order=desc')).slice(0, 1);
        t.equal(JSON.stringify(given.content[0].own), expected, `${name}, in a block`);
      }
    });

    t.test('fields that an event does not have are dropped, fields that it may lack stay away', async (t) => {
      const id = await place.session();
      const [message, tool] = await place.append(
        id,
        {
          ...MESSAGE,
          id: 'sevt_mine',
          processed_at: '2000-01-01T00:00:00Z',
          own: 1,
          tool_use_id: 'x',
          session_thread_id: null,
        },
        { ...TOOL, is_error: true },
      );
      t.strictSame(Object.keys(message).sort(), ['content', 'id', 'processed_at', 'type']);
      t.not(message.id, 'sevt_mine');
      t.ok(message.processed_at > '2020');
      t.strictSame(Object.keys(tool).sort(), ['id', 'input', 'name', 'processed_at', 'type']);
      const { json } = await place.answer(id, result(tool.id, { is_error: null }));
      t.strictSame(Object.keys(json.data[0]).sort(), ['id', 'is_error', 'processed_at', 'tool_use_id', 'type']);
      t.equal(json.data[0].is_error, null);
      const empty = await place.append(id, { type: 'user.message', content: [] });
      t.strictSame(empty[0].content, []);
      t.strictSame(
        (await place.events(id)).filter(({ type }) => type === 'user.message'),
        [message, empty[0]],
      );
    });

    t.test('what JSON cannot hold, or nobody could write again, is refused by name', async (t) => {
      const id = await place.session();
      const before = await everything(database);
      const deep = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;
      const input = (value: string) =>
        `{"events":[${JSON.stringify(MESSAGE)},{"type":"agent.tool_use","name":"x","input":{"a":${value}}}]}`;
      const bodies: [raw: string | Buffer, message: RegExp][] = [
        [input('1e999'), /^events.1 must be a JSON value: its numbers are finite/],
        [input('[null,-1e999]'), /^events.1 must be a JSON value: its numbers are finite/],
        [input(deep(20_000)), /^events.1 must nest at most 1000 levels/],
        [input(deep(999)), /^events.1 must nest at most 1000 levels/],
        [input('"\\u0000"'), /^events.1.input.a must not hold NUL/],
        [input('"\\ud800"'), /^events.1.input.a must not hold NUL or unpaired surrogates/],
        [input('{"\\udfff":1}'), /^a key of events.1.input.a must not hold NUL/],
        [input('NaN'), /^the body must be JSON in UTF-8/],
        [Buffer.from([0x7b, 0xff, 0x7d]), /^the body must be JSON in UTF-8/],
        ['', /^the body must be an object/],
      ];
      for (const [raw, message] of bodies) {
        const answer = await post(id, raw);
        checkRefusal(t, answer, 400, `${message}`);
        t.match(answer.json.error.message, message);
      }
      checkRefusal(
        t,
        await post(id, JSON.stringify({ events: [MESSAGE] }), OPERATOR_KEY, { 'content-type': 'text/plain' }),
        400,
        'no JSON',
      );
      t.equal(await everything(database), before);
      const levels = await post(id, input(deep(998)));
      t.equal(levels.status, 200, 'as deep as it may be');
      t.equal((await place.events(id)).length, 3);
    });

    t.test(
      'a body of 32 MiB is stored whole, one byte more is refused; other routes take what they took',
      async (t) => {
        const id = await place.session();
        const call1 = await place.tool(id);
        const largest = bodyOf(32 * MIB, result(call1));
        t.equal(Buffer.byteLength(largest), 32 * MIB);
        // By the length alone: a client that is still writing may not get to read the answer.
        const declare = (at: string, as: string, bytes: number) =>
          exchange(
            server.url,
            head(server, 'POST', at, { ...JSON_TYPE, authorization: `Bearer ${as}`, 'content-length': `${bytes}` }),
          );
        for (const [at, as, bytes] of [
          [path(id, '/events'), place.key, 32 * MIB],
          [`/control${path(id, '/events')}`, OPERATOR_KEY, 32 * MIB],
          ['/v1/sessions', OPERATOR_KEY, 32 * MIB],
          ['/control/v1/sessions', OPERATOR_KEY, 32 * MIB],
          [path(id), OPERATOR_KEY, MIB],
          [`/v1/environments/${place.environmentId}`, OPERATOR_KEY, MIB],
        ] as const) {
          checkRefusal(t, await declare(at, as, bytes + 1), 413, at);
        }
        const answer = await post(id, largest, place.key);
        t.equal(answer.status, 200);
        const { json } = await call('GET', path(id, '/events?types=user.tool_result'), { as: place.key });
        t.equal(json.data[0].content[0].text, JSON.parse(largest).events[0].content[0].text);
      },
    );
  });
}
