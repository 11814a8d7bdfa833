import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createSession } from '../../src/sessions/create.ts';
import { updateSession } from '../../src/sessions/update.ts';
import { ENGINES, OPERATOR_KEY, testDatabase, testServer } from '../support/harness.ts';
import { hold } from '../support/interleave.ts';
import { path, relayPlace, sessionRow, TOOL } from '../support/sessions.ts';
import { checkRefusal } from '../support/wire.ts';

const pairs = (count: number, from = 0) =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${from + n}`, 'v']));

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const place = await relayPlace(server);
    const update = (id: string, body: unknown, as: string | null = OPERATOR_KEY) =>
      call('POST', path(id), { as, body });

    t.test('what is omitted is kept, null clears, metadata is merged', async (t) => {
      const { json: before } = await place.create({
        title: 'old',
        metadata: { a: '1', b: '2' },
        agent: { id: 'mine', own: 1 },
      });
      const { id } = before;
      const neighbour = await place.session({ title: 'neighbour', metadata: { a: '1' } });
      const unchanged = await sessionRow(database, neighbour);
      const after = (await update(id, { metadata: { a: null, c: '', __proto__x: 'y' } })).json;
      t.strictSame(after, { ...before, metadata: { b: '2', c: '', __proto__x: 'y' }, updated_at: after.updated_at });
      t.ok(after.updated_at > before.updated_at);
      t.match((await update(id, { title: 'new' })).json, { title: 'new', metadata: { b: '2' } });
      t.match((await update(id, { metadata: null })).json, { title: 'new', metadata: { b: '2' } });
      t.match((await update(id, { metadata: {}, unknown: 5 })).json, { title: 'new', metadata: { b: '2' } });
      const cleared = (await update(id, { title: null })).json;
      t.strictSame(cleared, { ...after, title: null, updated_at: cleared.updated_at });
      t.strictSame((await call('GET', path(id), { as: OPERATOR_KEY })).json, cleared);
      t.strictSame(await sessionRow(database, neighbour), unchanged, "and nobody else's");
    });

    t.test('what cannot be changed is refused by its name, and nothing is', async (t) => {
      const id = await place.session({ title: 'old' });
      for (const field of ['agent', 'budget', 'vault_ids']) {
        const answer = await update(id, { title: 'new', [field]: [] });
        t.equal(answer.status, 400, field);
        t.match(answer.json.error.message, new RegExp(`^${field} `));
        t.equal((await update(id, { [field]: null })).status, 200, `${field}: null asks for nothing`);
      }
      t.equal((await call('GET', path(id), { as: OPERATOR_KEY })).json.title, 'old');
    });

    t.test('a change of words is no event, moves no number and arms nobody', async (t) => {
      const id = await place.session();
      await place.append(id, TOOL);
      const before = await sessionRow(database, id);
      await update(id, { title: 'said' });
      t.strictSame(await sessionRow(database, id), {
        ...before,
        title: 'said',
        updated_at: (await sessionRow(database, id)).updated_at,
      });
    });

    t.test('limits hold for what comes of it, and a refusal changes nothing', async (t) => {
      const id = await place.session({ title: 'kept', metadata: pairs(16) });
      const before = await sessionRow(database, id);
      const refusals: [body: unknown, message: RegExp, code?: string][] = [
        [{ metadata: { more: 'v' } }, /at most 16 pairs, this would make 17/, 'invalid_metadata'],
        [{ title: 'x', metadata: pairs(2, 15) }, /this would make 17/, 'invalid_metadata'],
        [{ metadata: { k0: 'x'.repeat(513) } }, /metadata.k0 must have at most 512 characters/, 'invalid_metadata'],
        [{ metadata: { '': 'x' } }, /metadata key "" must have 1 to 64/, 'invalid_metadata'],
        [{ metadata: { k0: 5 } }, /^metadata.k0 must be a string or null/],
        [{ metadata: [] }, /^metadata must be an object or null/],
        [{ metadata: { k0: 'a\0' } }, /^metadata.k0 must not hold NUL/],
        [{ title: '' }, /^title must be a string of 1 to 512 characters or null/],
        [{ title: 'x'.repeat(513) }, /^title must be a string of 1 to 512/],
        [{ title: 5 }, /^title must be a string/],
        [[], /^the body must be an object/],
        [null, /^the body must be an object/],
      ];
      for (const [body, message, code] of refusals) {
        const answer = await update(id, body);
        checkRefusal(t, answer, 400, `${message}`);
        t.match(answer.json.error.message, message);
        if (code !== undefined) t.equal(answer.json.error.details.error_code, code);
      }
      t.strictSame(await sessionRow(database, id), before);
      const swapped = await update(id, { metadata: { k0: null, k1: null, x: '1', y: '2' } });
      t.match(
        swapped,
        { status: 200, json: { title: 'kept', metadata: { x: '1', y: '2', k15: 'v' } } },
        'what goes makes room',
      );
      t.equal(
        (await update(id, { title: '\u{1F600}'.repeat(512) })).status,
        200,
        'characters are counted, not their halves',
      );
    });

    t.test('ids that cannot be are not found, whoever asks', async (t) => {
      for (const id of [
        'sesn_nobody',
        'nobody',
        'sesn_',
        'sesn_%00',
        '%00',
        'sesn_a%2Fb',
        `sesn_${'a'.repeat(65)}`,
        '%C3%28',
        "sesn_'",
      ]) {
        for (const as of [OPERATOR_KEY, place.key]) {
          const calls = [
            call('GET', path(id), { as }),
            call('GET', path(id, '/events'), { as }),
            call('GET', path(id, '/events/stream'), { as }),
            call('POST', path(id, '/events'), {
              as,
              body: { events: [{ type: 'user.tool_result', tool_use_id: 'x' }] },
            }),
          ];
          if (as === OPERATOR_KEY) {
            calls.pop();
            calls.push(
              update(id, { title: 'x' }),
              call('POST', path(id, '/archive'), { as }),
              call('DELETE', path(id), { as }),
            );
          }
          for (const answer of await Promise.all(calls)) checkRefusal(t, answer, 404, `${id} as ${as}`);
        }
      }
    });

    t.test('only an operator changes, archives and deletes, and in whatever state a session is', async (t) => {
      const id = await place.session();
      await place.append(id, TOOL);
      const { token } = await place.work();
      const { key: reader } = (
        await call('POST', '/control/v1/keys', { as: OPERATOR_KEY, body: { name: `r ${engine}`, role: 'read_only' } })
      ).json;
      const elsewhere = await relayPlace(server);
      const before = await sessionRow(database, id);
      for (const [as, status] of [
        [reader, 403],
        [place.key, 403],
        [token, 403],
        [elsewhere.key, 403],
        ['lhe_x', 401],
        [null, 401],
      ] as const) {
        const calls = [
          update(id, { title: 'x' }, as),
          call('POST', path(id, '/archive'), { as }),
          call('DELETE', path(id), { as }),
        ];
        for (const answer of await Promise.all(calls)) checkRefusal(t, answer, status, `${status}`);
      }
      t.strictSame(await sessionRow(database, id), before);
      await call('POST', path(id, '/archive'), { as: OPERATOR_KEY });
      t.match((await update(id, { title: 'after' })).json, {
        title: 'after',
        status: 'terminated',
        archived_at: String,
      });
    });
  });
}

t.test("postgres: two patches at once lose none of each other's keys", async (t) => {
  const database = await testDatabase(t);
  const { id: environmentId } = await createEnvironment(database, { name: 'raced', type: 'self_hosted' });
  const { session } = await createSession(database, { environmentId, metadata: pairs(15) });
  const held = await hold(t, database, (bound) =>
    updateSession(bound, session.id, { title: 'first', metadata: { one: '1' } }),
  );
  const [second, third] = [
    updateSession(database, session.id, { metadata: { two: '2' } }).catch((error: unknown) => error),
    updateSession(database, session.id, { metadata: { k0: null, three: '3' } }),
  ];
  await held.untilBlocked(2);
  await held.commit();
  t.match(await second, { code: 'invalid_metadata' }, 'the limit is on what both make together');
  t.match(await third, { title: 'first', metadata: { one: '1', three: '3' } });
});
