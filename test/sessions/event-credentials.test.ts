import t from 'tap';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import {
  ASKED,
  CUSTOM,
  customResult,
  DENIED,
  everything,
  INTERRUPT,
  itemsOf,
  MESSAGE,
  path,
  relayPlace,
  result,
  SAID,
  TOOL,
  verdict,
} from '../support/sessions.ts';
import { checkRefusal, readSecret } from '../support/wire.ts';

/** An open call of each kind, for what answers one. */
type Open = { readonly tool: string; readonly asked: string; readonly custom: string };

const AGENTS: Readonly<Record<string, (open: Open) => object>> = {
  'user.message': () => MESSAGE,
  'user.interrupt': () => INTERRUPT,
  'agent.message': () => SAID,
  'agent.tool_use': () => TOOL,
  'agent.tool_use, asked for': () => ASKED,
  'agent.tool_use, denied': () => DENIED,
  'agent.custom_tool_use': () => CUSTOM,
  'user.tool_confirmation': ({ asked }) => verdict(asked, 'allow'),
  'user.tool_confirmation, denying': ({ asked }) => verdict(asked, 'deny'),
};
const WORKERS = { 'user.tool_result': ({ tool }: Open) => result(tool) };
const BOTH = { 'user.custom_tool_result': ({ custom }: Open) => customResult(custom) };
const UNSENDABLE = ['session.status_idle', 'session.status_running', 'session.status_terminated', 'agent.thinking'];

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const place = await relayPlace(server);
    const elsewhere = await relayPlace(server);

    const id = await place.session();
    const other = await place.session();
    await place.append(id, TOOL);
    const lost = await place.work();
    const superseded = lost.token;
    await lapse(database, lost.id);
    const again = await place.poll();
    t.not(again.id, lost.id, 'handed out again');
    const own = readSecret(again.secret).sessions_token;
    await place.append(other, TOOL);
    const sibling = (await place.work()).token;
    // Work may be enqueued for any text, so also for the name of a session that is another environment's.
    await server.queue.enqueue({ environmentId: elsewhere.environmentId, sessionId: id });
    const namesake = (await elsewhere.work()).token;
    const issued = await call('POST', '/control/v1/keys', {
      as: OPERATOR_KEY,
      body: { name: 'reader', role: 'read_only' },
    });

    /** What an agent's event, a worker's and either's are answered, and a read. */
    const CALLERS: readonly (readonly [name: string, as: string | null, statuses: readonly number[]])[] = [
      ['API operator', OPERATOR_KEY, [200, 403, 200, 200]],
      ['API read_only', issued.json.key, [403, 403, 403, 200]],
      ['own environment key', place.key, [403, 200, 200, 200]],
      ['foreign environment key', elsewhere.key, [401, 401, 401, 401]],
      ['own token', own, [403, 200, 200, 200]],
      ['superseded token', superseded, [403, 200, 200, 200]],
      ['token of another session', sibling, [403, 403, 403, 403]],
      ['token of a namesake elsewhere', namesake, [403, 403, 403, 403]],
      ['nobody', null, [401, 401, 401, 401]],
      ['unknown key', 'lhe_unknown', [401, 401, 401, 401]],
      ['forged token', `${own.slice(0, -4)}xxxx`, [401, 401, 401, 401]],
    ];

    for (const [name, as, [agents = 0, workers = 0, both = 0, reads = 0]] of CALLERS) {
      t.test(`${name}: each event, and reading`, async (t) => {
        const kinds = [
          [AGENTS, agents],
          [WORKERS, workers],
          [BOTH, both],
        ] as const;
        for (const [events, status] of kinds) {
          for (const [what, make] of Object.entries(events)) {
            const [tool, asked, custom] = (await place.append(id, TOOL, ASKED, CUSTOM)).map((event) => event.id);
            const before = await everything(database);
            const answer = await place.send(id, [make({ tool, asked, custom })], { as });
            if (status !== 200) {
              checkRefusal(t, answer, status, what);
              t.equal(await everything(database), before, `${what} leaves nothing`);
            } else {
              t.equal(answer.status, 200, `${what}: ${answer.text}`);
              t.match(answer.json.data, [{ type: what.split(',')[0] }]);
            }
          }
        }
        for (const rest of ['', '/events'])
          t.equal((await call('GET', path(id, rest), { as })).status, reads, `GET ${rest}`);
        const before = await everything(database);
        for (const type of UNSENDABLE) {
          const answer = await place.send(id, [{ type }], { as });
          t.ok(answer.status >= 400 && answer.status < 404, `${type}: ${answer.status}`);
        }
        t.equal(await everything(database), before);
      });
    }

    t.test('one event that may not be sent takes the whole call with it', async (t) => {
      const tool = await place.tool(id);
      const before = await everything(database);
      checkRefusal(t, await place.send(id, [MESSAGE, result(tool)]), 403, 'a result from an agent');
      checkRefusal(t, await place.send(id, [result(tool), MESSAGE], { as: own }), 403, 'a message from a worker');
      t.equal(await everything(database), before);
    });

    t.test('a worker reaches nothing under /control/v1', async (t) => {
      for (const [as, status] of [
        [place.key, 403],
        [own, 403],
        [issued.json.key, 403],
        [null, 401],
      ] as const) {
        const answer = await call('POST', `/control/v1/sessions/${id}/events`, { as, body: { events: [CUSTOM] } });
        checkRefusal(t, answer, status, `${status}`);
      }
    });

    t.test('an append under an Idempotency-Key is made once, and arms once', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const once = (events: object[], key = 'append') =>
        call('POST', `/control/v1/sessions/${id}/events`, {
          as: OPERATOR_KEY,
          body: { events },
          headers: { 'idempotency-key': `${key} ${id}` },
        });
      const first = await once([TOOL]);
      t.equal(first.status, 200);
      t.strictSame((await once([TOOL])).json, first.json);
      t.equal((await place.events(id)).length, 2);
      t.match(await itemsOf(database, id), [{ state: 'queued' }]);
      checkRefusal(t, await once([TOOL, TOOL]), 409, 'the key for something else');
      checkRefusal(t, await once([verdict('sevt_none', 'deny')], 'bad'), 400, 'what was refused as bad input');
      t.equal((await once([MESSAGE], 'bad')).status, 200, 'leaves its key free');
      const deep = JSON.stringify([{ ...TOOL, input: 0 }]).replace(
        '0',
        `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`,
      );
      const headers = { 'idempotency-key': `deep ${id}`, 'content-type': 'application/json' };
      const answer = await call('POST', `/control/v1/sessions/${id}/events`, {
        as: OPERATOR_KEY,
        raw: `{"events":${deep}}`,
        headers,
      });
      checkRefusal(t, answer, 400, 'what nests without end');
      t.match(answer.json.error.message, /^events.0 must nest at most 1000 levels/);
      await call('POST', path(id, '/archive'), { as: OPERATOR_KEY });
      t.strictSame((await once([TOOL])).json, first.json, 'also after its end');
    });
  });
}
