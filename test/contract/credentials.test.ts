import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { mintApiKey, mintEnvironmentKey } from '../../src/control/key-rows.ts';
import { issueKey } from '../../src/control/keys.ts';
import { resumeEnvironment } from '../../src/control/settings.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { completePlace, namedBy } from '../support/changes.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, type Server, testServer } from '../support/harness.ts';
import { lastUse, WITHIN_MS } from '../support/last-use.ts';
import { callRoute, checkRefusal, type Place, ROUTES, type Route, readSecret } from '../support/wire.ts';

type Verdict = 'in' | 401 | 403;
const everywhere = (verdict: Verdict) => () => verdict;
const REFUSED = everywhere(401);

/** Contract §2, the table and the sentence below it. */
const MATRIX: Readonly<Record<string, (route: Route) => Verdict>> = {
  'the environment key': ({ access }) => (access === 'operator' || access === 'holder' ? 403 : 'in'),
  // Without an environment in the path it is like the key above: known, but not for this call, or it lists what is its own.
  "another environment's key": (route) => {
    if (route.name === 'list sessions') return 'in';
    return route.access === 'session' || route.path({ environmentId: 'env_x', workId: 'work_x' }).includes('env_x')
      ? 401
      : 403;
  },
  "the item's sessions token": ({ access }) => (['item', 'holder', 'member', 'session'].includes(access) ? 'in' : 403),
  "another item's sessions token": ({ access }) => (access === 'member' ? 'in' : 403),
  // A member is who holds an item now.
  'the sessions token of a superseded hand-out': everywhere(403),
  'an API key': everywhere('in'),
  'a read-only API key': ({ method, name, changesNothing }) =>
    changesNothing || (method === 'GET' && name !== 'poll') ? 'in' : 403,
  'the operator key': everywhere('in'),
  'an unknown environment key': REFUSED,
  'an unknown API key': REFUSED,
  'an unknown sessions token': REFUSED,
  "a sessions token with another's secret": REFUSED,
  'a revoked key': REFUSED,
  'an expired key': REFUSED,
  'no key at all': REFUSED,
  nonsense: REFUSED,
  'a key in the wrong case': REFUSED,
  'a longer key': REFUSED,
};

/** Polls until the item is handed out, and answers its token. */
async function handOut({ call, work, enqueue }: Server, session: string): Promise<{ id: string; token: string }> {
  await enqueue(session);
  const { json } = await call('GET', work('/poll?reclaim_older_than_ms=600000')); // however slow the test is
  return { id: json.id, token: readSecret(json.secret).sessions_token };
}

async function keyWith(server: Server, column: 'revoked_at' | 'expires_at'): Promise<string> {
  const { database, environment } = server;
  const { id, key } = await issueKey(database, { environmentId: environment.id, name: column });
  await database.rows(sql`update ${database.names.credentials}
    set ${sql.ref(column)} = clock_timestamp() - interval '1 second' where id = ${id}`);
  return key;
}

type Credentials = Readonly<Record<string, string | null>>;

/** Those that are the same for every route. */
async function lastingCredentials(server: Server): Promise<Credentials> {
  const { database, environmentKey } = server;
  const elsewhere = await createEnvironment(database, { name: 'elsewhere', type: 'self_hosted' });
  return {
    'the environment key': environmentKey,
    "another environment's key": (await issueKey(database, { environmentId: elsewhere.id, name: 'other' })).key,
    'an API key': (await issueKey(database, { environmentId: null, name: 'api' })).key,
    'a read-only API key': (await issueKey(database, { environmentId: null, name: 'api', role: 'read_only' })).key,
    'the operator key': OPERATOR_KEY,
    'an unknown environment key': mintEnvironmentKey(),
    'an unknown API key': mintApiKey(),
    'an unknown sessions token': `lhs_work_unknown.${'x'.repeat(43)}`,
    'a revoked key': await keyWith(server, 'revoked_at'),
    'an expired key': await keyWith(server, 'expires_at'),
    'no key at all': null,
    nonsense: 'nonsense',
    'a key in the wrong case': environmentKey.toUpperCase(),
    'a longer key': `${environmentKey}x`,
  };
}

/** Those of an item and of others that are handed out beside it. */
async function tokens(server: Server, item: { id: string; token: string }): Promise<Credentials> {
  const { database, call, work } = server;
  const other = await handOut(server, `other ${item.id}`);
  const old = await handOut(server, `old ${item.id}`);
  await lapse(database, old.id);
  const { json } = await call('GET', work('/poll'));
  if (json.data.id !== `old ${item.id}` || json.id === old.id) throw new Error('the hand-out was not superseded');
  return {
    "the item's sessions token": item.token,
    "another item's sessions token": other.token,
    'the sessions token of a superseded hand-out': old.token,
    "a sessions token with another's secret": `${item.token.split('.')[0]}.${other.token.split('.')[1]}`,
  };
}

/** Each kind of credential on one route; a refusal leaves the item as it was. */
async function checkRoute(t: Test, server: Server, lasting: Credentials, route: Route): Promise<void> {
  const { database, environment } = server;
  // What other routes enqueued would be handed out first.
  await database.rows(sql`update ${database.names.workItems} set state = 'stopped' where state = 'queued'`);
  const isOfItem = ['workId', 'sessionId'].some((name) => namedBy(route).has(name));
  let item = await handOut(server, `${route.name} 0`);
  const keys: Credentials = { ...lasting, ...(await tokens(server, item)) };
  t.strictSame(Object.keys(keys).sort(), Object.keys(MATRIX).sort(), 'each kind is tried');
  /** What nobody was let in to since it was made: it serves the next one who is refused, too. */
  let untouched: { place: Place; before: Awaited<ReturnType<typeof rowOf>> } | undefined;
  for (const [kind, verdictOf] of Object.entries(MATRIX)) {
    const what = `${route.name}, ${kind}`;
    const verdict = verdictOf(route);
    if (verdict === 'in' && isOfItem && !kind.includes('sessions token')) item = await handOut(server, what);
    const workId = kind === "the item's sessions token" ? (keys[kind]?.slice(4).split('.')[0] ?? '') : item.id;
    if (verdict === 'in' || untouched?.place.workId !== workId) {
      if (route.name === 'heartbeat') await server.call('POST', server.work(`/${workId}/ack`));
      const bare = { environmentId: environment.id, workId };
      const place = verdict === 'in' || route.access === 'session' ? await completePlace(server, bare, route) : bare;
      untouched = { place, before: await rowOf(database, workId) };
    }
    const { place, before } = untouched;
    const answer = await callRoute(server, route, place, keys[kind] ?? null);
    if (route.name === 'pause') await resumeEnvironment(database, environment.id, DEFAULT_SETTINGS);
    if (verdict === 'in') {
      t.equal(answer.status, route.success, what);
      untouched = undefined;
      if (route.name === 'release') item = await handOut(server, `after ${what}`); // its id is gone
    } else {
      checkRefusal(t, answer, verdict, what);
      t.strictSame(await rowOf(database, workId), before, `${what}: the row is as it was`);
    }
  }
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    // What is handed out stays so, however slow the machine.
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { call, work, database, environment, environmentKey } = server;

    const lasting = await lastingCredentials(server);
    for (const route of ROUTES) {
      t.test(`${route.name} lets in whom the matrix names, and nobody else`, (t) =>
        checkRoute(t, server, lasting, route),
      );
    }

    t.test('health and readiness need no credential', async (t) => {
      for (const path of ['/healthz', '/readyz']) {
        for (const as of [null, 'nonsense']) t.equal((await call('GET', path, { as })).status, 200, `${path} ${as}`);
      }
    });

    t.test('a superseded token still reaches its own id, and is told that the item went on', async (t) => {
      const { id, token } = await handOut(server, 'superseded');
      await lapse(database, id);
      const { json } = await call('GET', work('/poll'));
      const before = await rowOf(database, json.id);
      for (const path of ['/ack', '/heartbeat?expected_last_heartbeat=NO_HEARTBEAT', '/stop']) {
        const answer = await call('POST', work(`/${id}${path}`), { as: token });
        checkRefusal(t, answer, 404, path);
        t.match(answer.json.error.message, /handed out again under a new id/, path);
        checkRefusal(t, await call('POST', work(`/${json.id}${path}`), { as: token }), 403, `${path} of the new id`);
      }
      t.strictSame(await rowOf(database, json.id), before, 'the new hand-out is as it was');
    });

    t.test('the token of a stopped item is answered what its holder understands, never 401', async (t) => {
      const { id, token } = await handOut(server, 'stopped');
      await call('POST', work(`/${id}/stop`), { as: OPERATOR_KEY });
      t.equal((await call('POST', work(`/${id}/ack`), { as: token })).json.state, 'stopped');
      const beat = `/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`;
      checkRefusal(t, await call('POST', work(beat), { as: token }), 412, 'heartbeat');
      checkRefusal(t, await call('POST', work(`/${id}/stop`), { as: token }), 409, 'stop');
    });

    t.test('a token opens its own id in its own environment only', async (t) => {
      const { id, token } = await handOut(server, 'own environment');
      const elsewhere = await createEnvironment(database, { name: 'for the token', type: 'self_hosted' });
      const answer = await call('POST', `/v1/environments/${elsewhere.id}/work/${id}/ack`, { as: token });
      checkRefusal(t, answer, 403, 'another environment');
    });

    t.test('a key may come as a bearer token in any case, or as x-api-key', async (t) => {
      const get = (headers: Record<string, string>) => call('GET', work('/stats'), { as: null, headers });
      for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR']) {
        t.equal((await get({ authorization: `${scheme} ${environmentKey}` })).status, 200, scheme);
      }
      for (const name of ['x-api-key', 'X-API-Key']) t.equal((await get({ [name]: environmentKey })).status, 200, name);
      for (const authorization of [
        environmentKey,
        `Basic ${environmentKey}`,
        `Bearer${environmentKey}`,
        'Bearer',
        'Bearer ',
      ]) {
        checkRefusal(t, await get({ authorization }), 401, authorization.replace(environmentKey, '…'));
      }
    });

    t.test('of two headers at once, the one that is known counts', async (t) => {
      const { id, token } = await handOut(server, 'both headers');
      const unknown = mintApiKey();
      const ack = (bearer: string, key: string) =>
        call('POST', work(`/${id}/ack`), {
          as: null,
          headers: { authorization: `Bearer ${bearer}`, 'x-api-key': key },
        });
      for (const known of [token, environmentKey, OPERATOR_KEY]) {
        t.equal((await ack(known, unknown)).status, 200, 'bearer');
        t.equal((await ack(unknown, known)).status, 200, 'x-api-key');
        t.equal((await ack(known, '')).status, 200, 'an empty one beside it');
      }
      checkRefusal(t, await ack(unknown, 'nonsense'), 401, 'neither');
    });

    t.test('unknown, malformed, expired and revoked are one answer', async (t) => {
      const keys = [
        mintEnvironmentKey(),
        'nonsense',
        null,
        await keyWith(server, 'expires_at'),
        await keyWith(server, 'revoked_at'),
      ];
      const bodies = await Promise.all(
        keys.map(async (as) => {
          const answer = await call('GET', work('/poll'), { as });
          const headers = [...answer.headers].filter(([name]) => !['request-id', 'date'].includes(name));
          return { status: answer.status, headers, body: { ...answer.json, request_id: null } };
        }),
      );
      for (const body of bodies) t.strictSame(body, bodies[0]);
    });

    t.test('a key that was not there a moment ago works as soon as it is', async (t) => {
      for (const [environmentId, key] of [
        [environment.id, mintEnvironmentKey()],
        [null, mintApiKey()],
      ] as const) {
        for (let n = 0; n < 3; n++) t.equal((await call('GET', work('/stats'), { as: key })).status, 401, 'not yet');
        await issueKey(database, { environmentId, name: 'late', key });
        t.equal((await call('GET', work('/stats'), { as: key })).status, 200, 'at once');
      }
    });

    for (const column of ['revoked_at', 'expires_at']) {
      t.test(`a key in use is refused within about a second of ${column}`, async (t) => {
        const { id, key } = await issueKey(database, { environmentId: environment.id, name: column });
        const status = async () => (await call('GET', work('/stats'), { as: key })).status;
        t.equal(await status(), 200);
        await database.rows(sql`update ${database.names.credentials}
          set ${sql.ref(column)} = clock_timestamp(), changed_at = clock_timestamp() where id = ${id}`);
        const endedAt = performance.now();
        const late = (await lastUse(status)) - endedAt;
        t.ok(late < WITHIN_MS, `the last use was ${late} ms after it`);
        t.equal(await status(), 401, 'and stays so');
      });
    }

    t.test('keys and tokens are stored as their SHA-256 only', async (t) => {
      const { id, token } = await handOut(server, 'hashed');
      await lapse(database, id);
      const again = (await call('GET', work('/poll'))).json;
      const issued = await call('POST', `/control/v1/environments/${environment.id}/keys`, {
        as: OPERATOR_KEY,
        body: { name: 'hashed' },
      });
      const { credentials, workItems, handOuts } = database.names;
      const tables = await Promise.all(
        [credentials, workItems, handOuts].map((table) =>
          database.rows(sql<{ row: string }>`select to_jsonb(x)::text as row from ${table} x`),
        ),
      );
      const stored = tables
        .flat()
        .map(({ row }) => row)
        .join('\n');
      const secrets = [issued.json.key, environmentKey, token, readSecret(again.secret).sessions_token];
      for (const secret of secrets) {
        t.notOk(stored.includes(secret), 'not as it is');
        t.notOk(stored.includes(secret.slice(-43)), 'nor its secret part');
        t.notOk(stored.includes(Buffer.from(secret).toString('base64')), 'nor encoded');
      }
      const { key_hash } = JSON.parse(
        (
          await database.rows(
            sql<{ row: string }>`select to_jsonb(c)::text as row from ${credentials} c where c.id = ${issued.json.id}`,
          )
        )[0]?.row ?? '{}',
      );
      const sha256 = createHash('sha256').update(issued.json.key).digest();
      t.ok([sha256.toString('hex'), sha256.toString('base64url')].includes(key_hash), 'the hash itself is there');
    });
  });
}
