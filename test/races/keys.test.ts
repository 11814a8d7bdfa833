import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { deleteEnvironment } from '../../src/control/change-environment.ts';
import { createCallers, recordUses } from '../../src/control/credentials.ts';
import { createEnvironment, retrieveEnvironment } from '../../src/control/environments.ts';
import { issueKey, listKeys, revokeKey, rotateKey } from '../../src/control/keys.ts';
import type { Database } from '../../src/db/connect.ts';
import { testDatabase } from '../support/harness.ts';
import { hold } from '../support/interleave.ts';

async function place(t: Test) {
  const database = await testDatabase(t);
  const { id: environmentId } = await createEnvironment(database, { name: 'raced', type: 'self_hosted' });
  return { database, environmentId };
}

const issue =
  (environmentId: string | null, name = 'raced') =>
  (database: Database) =>
    issueKey(database, { environmentId, name });

const found = async (database: Database, environmentId: string | null) =>
  (await listKeys(database, environmentId, { limit: 1_000 })).items;

for (const kind of ['environment', 'API']) {
  t.test(`${kind} keys: of two issued at once only one takes the last place`, async (t) => {
    const made = await place(t);
    const { database } = made;
    const environmentId = kind === 'API' ? null : made.environmentId;
    await database.rows(sql`
      insert into ${database.names.credentials} (id, environment_id, name, key_hash, expires_at)
      select 'key_' || n, ${environmentId}, 'filled', n::text, clock_timestamp() + interval '1 day'
      from generate_series(1, 998) n`);
    const race = async (ending: 'rollback' | 'commit') => {
      const first = await hold(t, database, issue(environmentId));
      const second = issue(environmentId)(database).catch((error: unknown) => error);
      await first.untilBlocked();
      await first[ending]();
      return second;
    };
    t.match(await race('rollback'), { name: 'raced' }, 'the first took nothing');
    t.match(await race('commit'), { code: 'conflict', message: /1000 live/ });
    t.equal((await found(database, environmentId)).length, 1_000);
  });
}

t.test('a rotation that waits for the issue of the last key is refused', async (t) => {
  const { database, environmentId } = await place(t);
  const { id } = await issue(environmentId)(database);
  await database.rows(sql`
    insert into ${database.names.credentials} (id, environment_id, name, key_hash, expires_at)
    select 'key_' || n, ${environmentId}, 'filled', n::text, clock_timestamp() + interval '1 day'
    from generate_series(1, 998) n`);
  const first = await hold(t, database, issue(environmentId));
  const rotating = rotateKey(database, { environmentId, id });
  const refused = t.rejects(rotating, { code: 'conflict', message: /1000 live keys/ });
  await first.untilBlocked();
  await first.commit();
  await refused;
  t.equal((await found(database, environmentId)).length, 1_000);
});

t.test('an issue that waits for a delete finds no environment', async (t) => {
  const { database, environmentId } = await place(t);
  const deleting = await hold(t, database, (held) => deleteEnvironment(held, environmentId));
  const refused = t.rejects(issue(environmentId)(database), { code: 'environment_not_found' });
  await deleting.untilBlocked();
  await deleting.commit();
  await refused;
});

t.test('a delete that waits for an issue revokes the key that was issued', async (t) => {
  const { database, environmentId } = await place(t);
  const issued = await hold(t, database, issue(environmentId));
  const deleted = deleteEnvironment(database, environmentId);
  await issued.untilBlocked();
  await issued.commit();
  await deleted;
  await t.rejects(retrieveEnvironment(database, environmentId), { code: 'environment_not_found' });
  const callers = createCallers({ database });
  t.equal(await callers.identify(issued.answer.key), undefined);
  await callers.close();
});

t.test('a key that is revoked while it is about to be rotated gets no successor', async (t) => {
  const { database, environmentId } = await place(t);
  const { id } = await issue(environmentId)(database);
  const revoked = await hold(t, database, (held) => revokeKey(held, { environmentId, id }));
  const refused = t.rejects(rotateKey(database, { environmentId, id }), { code: 'conflict', message: /is revoked/ });
  await revoked.untilBlocked();
  await revoked.commit();
  await refused;
  t.equal((await found(database, environmentId)).length, 1);
});

t.test('a refused rotation leaves the key as it was, also in a transaction that goes on', async (t) => {
  const { database, environmentId } = await place(t);
  const ref = { environmentId, id: (await issue(environmentId)(database)).id };
  await revokeKey(database, ref);
  const row = async () =>
    database.rows(sql`select to_jsonb(c)::text as row from ${database.names.credentials} c where c.id = ${ref.id}`);
  const before = await row();
  const refused = await hold(t, database, (held) => rotateKey(held, ref).catch((error: unknown) => error));
  t.match(refused.answer, { code: 'conflict' });
  await refused.commit();
  t.strictSame(await row(), before);
});

t.test('a key that two rotate at once is replaced twice, and ends at the earlier of both', async (t) => {
  const { database, environmentId } = await place(t);
  const ref = { environmentId, id: (await issue(environmentId)(database)).id };
  const first = await hold(t, database, (held) => rotateKey(held, ref, { overlapSeconds: 100 }));
  const second = rotateKey(database, ref, { overlapSeconds: 1_000 });
  await first.untilBlocked();
  await first.commit();
  t.not((await second).id, first.answer.id);
  const keys = await found(database, environmentId);
  t.equal(keys.length, 3);
  const left = Date.parse(keys.find(({ id }) => id === ref.id)?.expiresAt ?? '') - Date.now();
  t.ok(left < 101_000, `${left} ms`);
});

t.test('uses are recorded past a key that somebody holds, and never move back', async (t) => {
  const { database, environmentId } = await place(t);
  const [held, free] = [await issue(environmentId)(database), await issue(environmentId, 'free')(database)];
  const used = (ageMs: number) => [held.id, free.id, 'key_gone'].map((keyId) => ({ keyId, ageMs }));
  const lastUsed = async (keyId: string) =>
    (await found(database, environmentId)).find(({ id }) => id === keyId)?.lastUsedAt ?? null;
  const revoking = await hold(t, database, (inside) => revokeKey(inside, { environmentId, id: held.id }));
  await recordUses(database, used(5_000));
  await revoking.rollback();
  t.equal(await lastUsed(held.id), null);
  const first = await lastUsed(free.id);
  t.ok(Math.abs(Date.now() - Date.parse(first ?? '') - 5_000) < 4_000, `${first}`);
  await recordUses(database, used(60_000));
  t.equal(await lastUsed(free.id), first, 'an older use changes nothing');
  t.type(await lastUsed(held.id), 'string');
});
