import t from 'tap';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import {
  ASKED,
  CUSTOM,
  customResult,
  everything,
  INTERRUPT,
  MESSAGE,
  relayPlace,
  result,
  SAID,
  TOOL,
  verdict,
} from '../support/sessions.ts';
import { checkRefusal } from '../support/wire.ts';

const CONTENT: [value: unknown, message: RegExp][] = [
  [null, /^events.0.content must be a list/],
  ['text', /^events.0.content must be a list/],
  [{}, /^events.0.content must be a list/],
  [[5], /^events.0.content.0 must be an object/],
  [['text'], /^events.0.content.0 must be an object/],
  [[{}], /^events.0.content.0.type is required and must be a string of 1 to 64/],
  [[{ type: '' }], /^events.0.content.0.type must be a string of 1 to 64 characters/],
  [[{ type: 'text' }, { type: 5 }], /^events.0.content.1.type must be a string of 1 to 64 characters/],
  [[{ type: 'x'.repeat(65) }], /^events.0.content.0.type must be a string of 1 to 64/],
  [[{ type: 'text', 'a\0': 1 }], /^a key of events.0.content.0 must not hold NUL/],
];
const REQUIRED_CONTENT: typeof CONTENT = [
  [undefined, /^events.0.content is required and must be a list/],
  [[{ type: 'text', text: 'a\0b' }], /^events.0.content.0.text must not hold NUL or unpaired surrogates/],
  [[{ type: 'text', text: '\udc00' }], /^events.0.content.0.text must not hold NUL or unpaired surrogates/],
  ...CONTENT,
];
const CALL_ID: typeof CONTENT = [
  [undefined, /^events.0.(custom_)?tool_use_id is required and must be a string of 1 to 70/],
  [null, /^events.0.(custom_)?tool_use_id must be a string/],
  ['', /^events.0.(custom_)?tool_use_id must be a string of 1 to 70 characters/],
  [5, /^events.0.(custom_)?tool_use_id must be a string/],
  ['x'.repeat(71), /^events.0.(custom_)?tool_use_id must be a string of 1 to 70/],
  ['a\0', /^events.0.(custom_)?tool_use_id must not hold NUL/],
  ["sevt_' or true", /^events.0.(custom_)?tool_use_id: no such call in this session/],
];
const IS_ERROR: typeof CONTENT = [
  [0, /^events.0.is_error must be true or false or null/],
  ['true', /^events.0.is_error must be true or false/],
];
const NAME: typeof CONTENT = [
  [undefined, /^events.0.name is required and must be a string of 1 to 128/],
  [null, /^events.0.name must be a string/],
  ['', /^events.0.name must be a string of 1 to 128 characters/],
  ['x'.repeat(129), /^events.0.name must be a string of 1 to 128/],
  ['\ud800', /^events.0.name must not hold NUL or unpaired surrogates/],
];
const INPUT: typeof CONTENT = [
  [undefined, /^events.0.input is required and must be an object/],
  [null, /^events.0.input must be an object/],
  ['{}', /^events.0.input must be an object/],
  [[], /^events.0.input must be an object/],
  [5, /^events.0.input must be an object/],
  [{ a: { b: ['\0'] } }, /^events.0.input.a.b.0 must not hold NUL/],
];

/** Every field of every event, and what it may not be. */
const FIELDS: readonly [event: object, field: string, bad: typeof CONTENT][] = [
  [MESSAGE, 'content', REQUIRED_CONTENT],
  [SAID, 'content', REQUIRED_CONTENT],
  [result('sevt_x'), 'content', CONTENT],
  [result('sevt_x'), 'tool_use_id', CALL_ID],
  [result('sevt_x'), 'is_error', IS_ERROR],
  [customResult('sevt_x'), 'content', CONTENT],
  [customResult('sevt_x'), 'custom_tool_use_id', CALL_ID],
  [customResult('sevt_x'), 'is_error', IS_ERROR],
  [verdict('sevt_x', 'allow'), 'tool_use_id', CALL_ID],
  [
    ...([verdict('sevt_x', 'allow'), 'result'] as const),
    [
      [undefined, /^events.0.result is required and must be one of allow, deny/],
      ['Allow', /^events.0.result must be one of allow, deny/],
      [true, /^events.0.result must be one of allow, deny/],
      [null, /^events.0.result must be one of allow, deny/],
    ],
  ],
  [
    ...([verdict('sevt_x', 'deny'), 'deny_message'] as const),
    [
      [5, /^events.0.deny_message must be a string of 0 to 2000 characters or null/],
      ['x'.repeat(2_001), /^events.0.deny_message must be a string of 0 to 2000/],
      ['\0', /^events.0.deny_message must not hold NUL/],
    ],
  ],
  [TOOL, 'name', NAME],
  [TOOL, 'input', INPUT],
  [
    ...([ASKED, 'evaluated_permission'] as const),
    [
      ['maybe', /^events.0.evaluated_permission must be one of allow, ask, deny/],
      [null, /^events.0.evaluated_permission must be one of allow, ask, deny/],
      [['ask'], /^events.0.evaluated_permission must be one of allow, ask, deny/],
    ],
  ],
  [CUSTOM, 'name', NAME],
  [CUSTOM, 'input', INPUT],
  [
    ...([INTERRUPT, 'type'] as const),
    [
      [undefined, /^events.0.type must be one of user.message, .*agent.custom_tool_use$/],
      ['user.Message', /^events.0.type must be one of user.message/],
      [5, /^events.0.type must be one of user.message/],
      ['session.status_idle', /^events.0.type must be one of user.message/],
      ['user.define_outcome', /^events.0.type must be one of user.message/],
      ['system.message', /^events.0.type must be one of user.message/],
      ['__proto__', /^events.0.type must be one of user.message/],
      ['toString', /^events.0.type must be one of user.message/],
    ],
  ],
];

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const place = await relayPlace(server);
    const id = await place.session();

    t.test('a bad field is named with its rule, and nothing of the call is stored', async (t) => {
      const before = await everything(database);
      for (const [event, field, bad] of FIELDS) {
        const { type } = event as { type: string };
        const as = type === 'user.tool_result' ? place.key : OPERATOR_KEY;
        for (const [value, message] of bad) {
          const answer = await place.send(id, [{ ...event, [field]: value }], { as });
          checkRefusal(t, answer, 400, `${type} ${field} ${JSON.stringify(value)?.slice(0, 80)}`);
          t.match(answer.json.error.message, message, `${type} ${field}`);
        }
      }
      t.equal(await everything(database), before);
    });

    t.test('a bad body is named, wherever in it the fault is', async (t) => {
      const bodies: [body: unknown, message: RegExp][] = [
        [{}, /^events is required and must be a list of 1 to 1000/],
        [{ events: [] }, /^events must be a list of 1 to 1000/],
        [{ events: {} }, /^events must be a list of 1 to 1000/],
        [{ events: null }, /^events must be a list of 1 to 1000/],
        [{ events: Array(1_001).fill(INTERRUPT) }, /^events must be a list of 1 to 1000/],
        [{ events: [5] }, /^events.0.* must be/],
        [{ events: [null] }, /^events.0.* must be/],
        [{ events: [[]] }, /^events.0.* must be/],
        [{ events: [MESSAGE, MESSAGE, { ...TOOL, name: '' }] }, /^events.2.name must be a string of 1 to 128/],
        [[MESSAGE], /^(the body must be an object|events is required)/],
        [null, /^the body must be an object/],
      ];
      const before = await everything(database);
      for (const [body, message] of bodies) {
        for (const at of [`/v1/sessions/${id}/events`, `/control/v1/sessions/${id}/events`]) {
          const answer = await call('POST', at, { as: OPERATOR_KEY, body });
          checkRefusal(t, answer, 400, `${message}`);
          t.match(answer.json.error.message, message);
        }
      }
      const late = await place.send(id, [MESSAGE, TOOL, verdict('sevt_none', 'deny')]);
      checkRefusal(t, late, 400, 'what only the session can tell');
      t.match(late.json.error.message, /^events.2.tool_use_id: no such call in this session/);
      t.equal(await everything(database), before, 'all or nothing');
    });

    t.test('as many calls may be open as may be sent at once, and no more', async (t) => {
      const id = await place.session();
      t.equal((await place.send(id, Array(1_000).fill(CUSTOM))).status, 200);
      const before = await everything(database);
      const answer = await place.send(id, [CUSTOM]);
      checkRefusal(t, answer, 400, 'one more');
      t.match(answer.json.error.message, /^events: at most 1000 calls may be open, this would make 1001/);
      t.equal(await everything(database), before);
      const [first] = await place.events(id);
      t.equal((await place.send(id, [customResult(first.id), CUSTOM])).status, 200, 'what closes makes room');
    });
  });
}
