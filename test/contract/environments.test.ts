import Anthropic from '@anthropic-ai/sdk';
import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { deleteEnvironment, updateEnvironment } from '../../src/control/change-environment.ts';
import { createEnvironment, retrieveEnvironment } from '../../src/control/environments.ts';
import {
  ENGINES,
  OPERATOR_KEY,
  type Server,
  testClient,
  testDatabase,
  testServer,
  until,
  untilBlocked,
} from '../support/harness.ts';
import { officialClient } from '../support/official-client.ts';

const { APIError } = Anthropic;

/** The whole row, to be compared before and after a refusal. */
async function rowOf({ database }: Server, id: string) {
  const [row] = await database.rows(
    sql<{ row: string }>`select to_jsonb(e)::text as row from ${database.names.environments} e where e.id = ${id}`,
  );
  return row?.row;
}

/** A refusal that says why, and leaves the environment as it was. */
async function refused(
  t: Test,
  server: Server,
  id: string,
  call: () => Promise<unknown>,
  { status, code, message }: { status: number; code?: string; message: RegExp },
) {
  const before = await rowOf(server, id);
  const error = await call().catch((reason: unknown) => reason);
  if (!(error instanceof APIError)) return t.fail('not refused', { error });
  t.match(error, { status, message });
  if (code !== undefined) t.match(error, { error: { error: { details: { error_code: code } } } });
  t.equal(await rowOf(server, id), before);
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, queue } = server;
    const { environments } = officialClient(t, server).client.beta;
    const ARCHIVED = { status: 400, code: 'environment_archived', message: /is archived/ };

    t.test('an update keeps what it omits, clears a null description and deletes empty metadata', async (t) => {
      const metadata = { kept: 'yes', nulled: 'x', emptied: 'y' };
      const made = await environments.create({ name: 'first', description: 'to go', metadata });
      t.match(made, { type: 'environment', config: { type: 'self_hosted' }, scope: 'organization', archived_at: null });
      const changes = { nulled: null, emptied: '', added: 'z' };
      const changed = await environments.update(made.id, { description: null, metadata: changes });
      t.strictSame(
        { ...changed, updated_at: undefined },
        { ...made, description: null, metadata: { kept: 'yes', added: 'z' }, updated_at: undefined },
      );
      t.ok(changed.updated_at > made.updated_at);
      const renamed = await environments.update(made.id, { name: 'renamed', config: { type: 'self_hosted' } });
      t.match(renamed, { name: 'renamed', description: null, metadata: { kept: 'yes', added: 'z' } });
      const described = await environments.update(made.id, { description: 'to keep' });
      const nothing = await environments.update(made.id, { name: null, config: null, scope: null });
      t.strictSame({ ...nothing, updated_at: '' }, { ...described, updated_at: '' });
      t.match(nothing, { name: 'renamed', description: 'to keep' });
      t.strictSame(await environments.retrieve(made.id), nothing);
    });

    t.test('what an update may not do is refused by its rule, and changes nothing', async (t) => {
      const { id } = await environments.create({ name: 'second', metadata: { a: '1' } });
      await environments.create({ name: 'taken' });
      const no = (change: object, status: number, message: RegExp, code?: string) =>
        refused(t, server, id, () => environments.update(id, change), { status, message, ...(code && { code }) });
      await no({ name: 'taken' }, 409, /name: an environment called .*taken.* exists/);
      await no({ name: '' }, 400, /name must be a string of 1 to 128 characters/);
      await no({ description: 5 }, 400, /description must be/);
      await no({ config: { type: 'cloud' } }, 400, /config.type is self_hosted/, 'invalid_config_type_change');
      for (const field of ['networking', 'packages']) {
        const config = { type: 'self_hosted', [field]: {} };
        await no({ config }, 400, new RegExp(`config.${field} does not go with`));
        const created = environments.create({ name: `with ${field}`, config } as never);
        await t.rejects(created, new RegExp(`config.${field} does not go with`));
      }
      const many = Object.fromEntries(Array.from({ length: 16 }, (_, n) => [`k${n}`, 'v']));
      const unmade = { name: 'unmade', metadata: many };
      await no(unmade, 400, /at most 16 pairs, this would make 17/, 'invalid_metadata');
      const long = { metadata: { b: 'x'.repeat(513) } };
      await no(long, 400, /metadata.b must have at most 512 characters/, 'invalid_metadata');
    });

    t.test('only an API key archives and deletes', async (t) => {
      const path = `/v1/environments/${server.environment.id}`;
      const before = await rowOf(server, server.environment.id);
      for (const [method, at] of [
        ['POST', `${path}/archive`],
        ['DELETE', path],
      ] as const) {
        for (const [as, status] of [
          [server.environmentKey, 403],
          ['lhe_unknown', 401],
          [null, 401],
        ] as const) {
          t.equal((await call(method, at, { as })).status, status, `${method} ${at} ${status}`);
        }
      }
      t.equal(await rowOf(server, server.environment.id), before);
    });

    t.test('an unknown environment is not found by any call', async (t) => {
      const id = 'env_nobody';
      const calls = [
        () => environments.retrieve(id),
        () => environments.update(id, {}),
        () => environments.archive(id),
        () => environments.delete(id),
      ];
      const notFound = { status: 404, code: 'environment_not_found', message: /env_nobody was not found/ };
      for (const call of calls) await refused(t, server, id, call, notFound);
    });

    t.test('pages go from newest to oldest, without the archived unless they are asked for', async (t) => {
      const made: string[] = [];
      for (let n = 0; n < 5; n++) made.unshift((await environments.create({ name: `page ${n}` })).id);
      await environments.archive(made[2] ?? '');
      const walk = async (params: { limit: number; include_archived?: boolean }) => {
        const ids: string[] = [];
        for await (const { id } of environments.list(params)) if (made.includes(id)) ids.push(id);
        return ids;
      };
      t.strictSame(await walk({ limit: 2, include_archived: true }), made);
      const live = made.filter((_, n) => n !== 2);
      t.strictSame(await walk({ limit: 1 }), live);
      t.strictSame(await walk({ limit: 1000, include_archived: false }), live);
      const refusals = {
        limit: ['0', '1001', 'x'],
        include_archived: ['1', 'TRUE', ''],
        page: ['', 'nobody-gave-this'],
      };
      for (const [name, values] of Object.entries(refusals)) {
        for (const value of values) {
          const { status, json } = await call('GET', `/v1/environments?${name}=${value}`, { as: OPERATOR_KEY });
          t.match({ status, message: json.error.message }, { status: 400, message: new RegExp(`^${name} must be `) });
        }
      }
    });

    t.test('an archived environment finishes what it has and takes nothing new', async (t) => {
      const { id: environmentId, name } = await environments.create({ name: 'to archive' });
      const { item } = await queue.enqueue({ environmentId, sessionId: 'session-1' });
      const archived = await environments.archive(environmentId);
      t.match(archived, { id: environmentId, archived_at: String });
      t.strictSame(await environments.archive(environmentId), archived, 'once more changes nothing');

      const work = `/v1/environments/${environmentId}/work`;
      const control = `/control/v1/environments/${environmentId}/work`;
      const as = OPERATOR_KEY;
      const covered = await call('POST', control, { as, body: { data: { type: 'session', id: 'session-1' } } });
      t.match(covered, { status: 200, json: { id: item.id } }, 'what is there covers its session');
      const added = await call('POST', control, { as, body: { data: { type: 'session', id: 'session-2' } } });
      t.match(added, { status: 400, json: { error: { details: { error_code: 'environment_archived' } } } });
      await refused(t, server, environmentId, () => environments.update(environmentId, { name: 'x' }), ARCHIVED);

      t.equal((await call('GET', `${work}/poll`, { as })).json.id, item.id);
      t.equal((await call('POST', `${work}/${item.id}/ack`, { as })).json.state, 'starting');
      const beat = `${work}/${item.id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`;
      t.equal((await call('POST', beat, { as })).json.state, 'active');
      t.equal((await call('POST', `${work}/${item.id}/stop`, { as, body: { force: true } })).status, 204);
      t.equal((await call('GET', `${work}/poll`, { as })).text, 'null');
      t.match(await environments.create({ name }), { name, archived_at: null }, 'its name is free');
    });

    t.test('an environment is deleted with its keys and finished work, but not while work is unfinished', async (t) => {
      const { id: environmentId } = await environments.create({ name: 'to delete' });
      const control = `/control/v1/environments/${environmentId}`;
      const { key } = (await call('POST', `${control}/keys`, { as: OPERATOR_KEY, body: { name: 'workers' } })).json;
      const { item } = await queue.enqueue({ environmentId, sessionId: 'session-1' });
      const unfinished = { status: 409, message: /has unfinished work/ };
      await refused(t, server, environmentId, () => environments.delete(environmentId), unfinished);
      t.equal(
        (await call('GET', `/v1/environments/${environmentId}/work/${item.id}`, { as: key })).json.state,
        'queued',
      );
      await queue.stop([{ environmentId, id: item.id, force: true, reason: 'operator' }]);
      const { id: neighbourId } = await environments.create({ name: 'neighbour of the deleted' });
      const finished = (await queue.enqueue({ environmentId: neighbourId, sessionId: 'finished' })).item;
      await queue.stop([{ environmentId: neighbourId, id: finished.id, force: true, reason: 'operator' }]);
      await queue.enqueue({ environmentId: neighbourId, sessionId: 'unfinished' });
      t.strictSame(await environments.delete(environmentId), { id: environmentId, type: 'environment_deleted' });
      await t.rejects(environments.retrieve(environmentId), /was not found/);
      const left = (await queue.list(neighbourId, { limit: 10 })).items.map(({ state }) => state);
      t.strictSame(left, ['queued', 'stopped'], 'and nothing of its neighbour');
      await until('the key to be gone', async () => {
        return (await call('GET', `/v1/environments/${environmentId}/work/poll`, { as: key })).status === 401;
      });
    });
  });
}

t.test('postgres: two updates at once lose none of each other', async (t) => {
  const { database } = await testServer(t);
  const { id } = await createEnvironment(database, { name: 'twice', type: 'self_hosted', metadata: { old: '0' } });
  const tx = await testClient(t);
  await tx.query('begin');
  await tx.query(`select from ${database.schema}.environments where id = $1 for update`, [id]);
  const updates = [
    updateEnvironment(database, id, { metadata: { a: '1' } }),
    updateEnvironment(database, id, { metadata: { b: '2', old: null } }),
  ];
  await untilBlocked(await testClient(t), database.schema, 2);
  await tx.query('commit');
  await Promise.all(updates);
  t.strictSame((await retrieveEnvironment(database, id)).metadata, { a: '1', b: '2' });
});

t.test('postgres: finished work without end is deleted in steps', async (t) => {
  const database = await testDatabase(t);
  const { id } = await createEnvironment(database, { name: 'large', type: 'self_hosted' });
  await database.rows(sql`
    insert into ${database.names.workItems} (id, environment_id, session_id, kind, lane, state, stopped_at)
    select 'work_' || n, ${id}, 's', 'tool_exec', 'wire', 'stopped', clock_timestamp() from generate_series(1, 5001) n`);
  const steps: number[] = [];
  const watched = {
    ...database,
    rows: async (...args: Parameters<typeof database.rows>) => {
      const rows = await database.rows(...args);
      if (args[0].compile(database.kysely).sql.includes('with finished as')) steps.push(rows.length);
      return rows;
    },
  };
  await deleteEnvironment(watched as typeof database, id);
  t.strictSame(steps, [5_000, 1, 0]);
  await t.rejects(retrieveEnvironment(database, id), { code: 'environment_not_found' });
});

t.test('postgres: a delete that waits for an enqueue finds its work, and leaves everything', async (t) => {
  const server = await testServer(t);
  const { database, queue } = server;
  const { environments } = officialClient(t, server).client.beta;
  const { id: environmentId } = await environments.create({ name: 'raced' });
  const { item: old } = await queue.enqueue({ environmentId, sessionId: 'session-1' });
  await queue.stop([{ environmentId, id: old.id, force: true, reason: 'operator' }]);
  const tx = await testClient(t);
  await tx.query('begin');
  const { item } = await queue.enqueue({ environmentId, sessionId: 'session-2' }, tx);
  const deleted = environments.delete(environmentId, {}, { maxRetries: 0 }).catch((error: unknown) => error);
  await untilBlocked(await testClient(t), database.schema);
  await tx.query('commit');
  t.match(await deleted, { status: 409, message: /has unfinished work/ });
  t.match(await queue.retrieve({ environmentId, id: item.id }), { state: 'queued' });
  t.match(await queue.retrieve({ environmentId, id: old.id }), { state: 'stopped' });
});

t.test('postgres: an enqueue that waits for a delete finds no environment', async (t) => {
  const { database, queue } = await testServer(t);
  const { id: environmentId } = await createEnvironment(database, { name: 'raced', type: 'self_hosted' });
  const tx = await testClient(t);
  await tx.query('begin');
  await tx.query(`delete from ${database.schema}.environments where id = $1`, [environmentId]);
  const refusal = t.rejects(queue.enqueue({ environmentId, sessionId: 'session-1' }), {
    code: 'environment_not_found',
  });
  await untilBlocked(await testClient(t), database.schema);
  await tx.query('commit');
  await refusal;
});
