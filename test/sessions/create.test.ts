import t from 'tap';
import { archiveEnvironment } from '../../src/control/change-environment.ts';
import { createEnvironment } from '../../src/control/environments.ts';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { everything, itemsOf, MESSAGE, relayPlace, result, TOOL, text } from '../support/sessions.ts';
import { checkRefusal } from '../support/wire.ts';

const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
const pairs = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${n}`, 'v']));
const nested = (levels: number) => JSON.parse(`${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`);

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const place = await relayPlace(server);
    const { environmentId, create } = place;

    t.test('a session is idle, has all official fields, and nobody is enqueued for it', async (t) => {
      const { status, json } = await create();
      t.equal(status, 200);
      const { id, created_at: createdAt, updated_at: updatedAt, agent, ...rest } = json;
      t.match(id, /^sesn_[A-Za-z0-9_-]{24}$/);
      t.match(createdAt, INSTANT);
      t.match(updatedAt, INSTANT);
      t.strictSame(rest, {
        ...{ type: 'session', environment_id: environmentId, title: null, status: 'idle', metadata: {} },
        ...{ archived_at: null, budget: null, deployment_id: null, outcome_evaluations: [], resources: [] },
        ...{ stats: {}, usage: {}, vault_ids: [] },
      });
      t.match(agent, { type: 'agent', id: String, name: String, version: Number, model: { id: String } });
      t.strictSame(agent.skills, []);
      t.strictSame(agent.mcp_servers, []);
      t.match(agent.tools, [{ type: /^agent_toolset_/ }]);
      t.strictSame([agent.description, agent.system, agent.multiagent], [null, null, null]);
      const retrieved = await call('GET', `/v1/sessions/${id}`, { as: OPERATOR_KEY });
      t.strictSame(retrieved.json, json);
      t.strictSame(await place.events(id), []);
      t.strictSame(await itemsOf(database, id), []);
    });

    t.test('what is given of an agent is kept, whatever it holds, and completed', async (t) => {
      const given = JSON.parse(
        '{"id":"a","name":"n","version":3,"system":"s","tools":[],"own":{"__proto__":{"x":1}},"model":{"id":"m"}}',
      );
      const { json } = await create({ agent: given, title: 'T'.repeat(512), metadata: pairs(16) });
      t.match(json, {
        title: 'T'.repeat(512),
        metadata: pairs(16),
        agent: { skills: [], mcp_servers: [], description: null },
      });
      for (const [name, value] of Object.entries(given))
        t.equal(JSON.stringify(json.agent[name]), JSON.stringify(value), name);
      t.match((await create({ agent: 'by its id' })).json.agent, { type: 'agent', id: 'by its id' });
      t.equal(
        (await create({ agent: { skills: null, type: 'other' } })).json.agent.type,
        'agent',
        'official fields stay official',
      );
    });

    t.test('what may not be is refused by its field and its rule, and nothing is written', async (t) => {
      const cloud = await createEnvironment(database, { name: `cloud ${engine}`, type: 'cloud' });
      const archived = await createEnvironment(database, { name: `archived ${engine}`, type: 'self_hosted' });
      await archiveEnvironment(database, archived.id);
      const refusals: [body: object, message: RegExp, status?: number, code?: string][] = [
        [{ environment_id: undefined }, /^environment_id is required/],
        [{ environment_id: null }, /^environment_id must be a string/],
        [{ environment_id: 'nobody' }, /^environment_id must be/],
        [{ environment_id: 'env_nobody' }, /env_nobody was not found/, 404, 'environment_not_found'],
        [{ environment_id: cloud.id }, /^environment_id: .* is a cloud environment/],
        [{ environment_id: archived.id }, /is archived/, 400, 'environment_archived'],
        [{ title: '' }, /^title must be a string of 1 to 512 characters or null/],
        [{ title: 'x'.repeat(513) }, /^title must be a string of 1 to 512 characters/],
        [{ title: 5 }, /^title must be a string/],
        [{ title: 'a\0' }, /^title must not hold NUL/],
        [{ title: '\ud800' }, /^title must not hold NUL or unpaired surrogates/],
        [{ metadata: null }, /^metadata must be an object/],
        [{ metadata: [] }, /^metadata must be an object/],
        [{ metadata: { a: 5 } }, /^metadata.a must be a string/],
        [{ metadata: { a: null } }, /^metadata.a must be a string/],
        [{ metadata: pairs(17) }, /at most 16 pairs, this would make 17/, 400, 'invalid_metadata'],
        [{ metadata: { a: 'x'.repeat(513), ['k'.repeat(65)]: '' } }, /512.*64|64.*512/, 400, 'invalid_metadata'],
        [{ agent: 5 }, /^agent must be a string of 1 to 128 characters or an object/],
        [{ agent: null }, /^agent must be a string of 1 to 128 characters or an object/],
        [{ agent: [] }, /^agent must be a string of 1 to 128 characters or an object/],
        [{ agent: '' }, /^agent must be a string of 1 to 128 characters/],
        [{ agent: { id: '' } }, /^agent.id must be a string of 1 to 128 characters/],
        [{ agent: { version: 0 } }, /^agent.version must be an integer from 1/],
        [{ agent: { tools: {} } }, /^agent.tools must be a list/],
        [{ agent: { tools: [{}] } }, /^agent.tools.0.type is required/],
        [{ agent: { skills: [{ type: 'custom' }] } }, /^agent.skills must be an empty list/],
        [{ agent: { mcp_servers: [{}] } }, /^agent.mcp_servers must be an empty list/],
        [{ agent: { system: 'x'.repeat(262_145) } }, /^agent must be at most 262144 bytes of JSON/],
        [{ agent: { deep: nested(1_001) } }, /^agent must nest at most 1000 levels/],
        [{ resources: [{ type: 'file' }] }, /^resources must be an empty list or null/],
        [{ vault_ids: ['vlt_1'] }, /^vault_ids must be an empty list/],
        [{ budget: { type: 'tokens' } }, /^budget must be null/],
        [{ initial_events: {} }, /^initial_events must be a list of 0 to 50/],
        [{ initial_events: Array(51).fill(MESSAGE) }, /^initial_events must be a list of 0 to 50/],
        [{ initial_events: [MESSAGE, { type: 'nothing' }] }, /^initial_events.1.type must be one of user.message/],
        [{ initial_events: [{ ...TOOL, name: '' }] }, /^initial_events.0.name must be a string of 1 to 128/],
        [
          { initial_events: [TOOL, { ...TOOL, input: nested(1_001) }] },
          /^initial_events.1 must nest at most 1000 levels/,
        ],
        [{ initial_events: [result('sevt_x')] }, /user.tool_result/, 403],
      ];
      const before = await everything(database);
      for (const [body, message, status = 400, code] of refusals) {
        const answer = await create(body);
        checkRefusal(t, answer, status, `${message}`);
        t.match(answer.json.error.message, message);
        if (code !== undefined) t.equal(answer.json.error.details.error_code, code);
      }
      for (const [raw, message] of [
        ['{', /^the body must be JSON/],
        ['[]', /^the body must be an object|environment_id is required/],
        ['', /^the body must be an object/],
        [
          `{"environment_id":"${environmentId}","agent":{"n":1e999}}`,
          /^agent must be a JSON value: its numbers are finite/,
        ],
        [
          `{"environment_id":"${environmentId}","initial_events":[${JSON.stringify(TOOL).replace('"ls"', '1e999')}]}`,
          /^initial_events.0 must be a JSON value: its numbers are finite/,
        ],
        [
          `{"environment_id":"${environmentId}","agent":{"a":${'['.repeat(20_000)}${']'.repeat(20_000)}}}`,
          /^agent must nest at most 1000 levels/,
        ],
      ] as const) {
        const answer = await call('POST', '/v1/sessions', {
          as: OPERATOR_KEY,
          raw,
          headers: { 'content-type': 'application/json' },
        });
        checkRefusal(t, answer, 400, raw.slice(0, 80));
        t.match(answer.json.error.message, message);
      }
      t.equal(await everything(database), before);
    });

    t.test('its first events come with it, or neither does', async (t) => {
      const { json } = await create({ initial_events: [MESSAGE, TOOL] });
      t.equal(json.status, 'idle');
      t.match(await place.events(json.id), [
        MESSAGE,
        TOOL,
        { type: 'session.status_idle', stop_reason: { type: 'requires_action' } },
      ]);
      t.match(await itemsOf(database, json.id), [{ state: 'queued' }]);
      t.equal((await create({ initial_events: [MESSAGE] })).json.status, 'running');
      const before = await everything(database);
      const lost = await create({
        initial_events: [MESSAGE, { type: 'user.tool_confirmation', tool_use_id: 'sevt_none', result: 'deny' }],
      });
      checkRefusal(t, lost, 400, 'an answer to no call');
      t.match(lost.json.error.message, /^initial_events.1.tool_use_id: no such call/);
      t.equal(await everything(database), before);
    });

    t.test('only an operator makes sessions', async (t) => {
      const reader = await call('POST', '/control/v1/keys', {
        as: OPERATOR_KEY,
        body: { name: `r ${engine}`, role: 'read_only' },
      });
      const id = await place.session({ initial_events: [{ type: 'user.message', content: text('') }] });
      const { token } = await place.work();
      for (const [as, status] of [
        [reader.json.key, 403],
        [place.key, 403],
        [token, 403],
        ['lhe_unknown', 401],
        [null, 401],
      ] as const) {
        const before = await everything(database);
        checkRefusal(t, await create({}, { as }), status, `${status}`);
        t.equal(await everything(database), before);
      }
      t.ok(id);
    });

    t.test('made under an Idempotency-Key it is made once', async (t) => {
      const body = { environment_id: environmentId, title: 'once', initial_events: [TOOL] };
      const once = (title: string) =>
        call('POST', '/control/v1/sessions', {
          as: OPERATOR_KEY,
          headers: { 'idempotency-key': `k ${engine}` },
          body: { ...body, title },
        });
      const [first, second] = [await once('once'), await once('once')];
      t.equal(first.status, 200);
      t.strictSame(second.json, first.json);
      t.equal((await place.events(first.json.id)).length, 2);
      checkRefusal(t, await once('twice'), 409, 'the key for something else');
    });
  });
}
