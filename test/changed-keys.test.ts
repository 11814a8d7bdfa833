import { sql } from 'kysely';
import t from 'tap';
import { createCallers } from '../src/control/credentials.ts';
import { CHANGES_MAX } from '../src/control/known-keys.ts';
import { STATEMENTS } from './support/gates.ts';
import { testDatabase, until } from './support/harness.ts';
import { lastUse, WITHIN_MS } from './support/last-use.ts';
import { manyKeys } from './support/many-keys.ts';

t.test('what changed is told for a minute, the latest first, and so much at once', async (t) => {
  const plain = await testDatabase(t);
  const keys = await manyKeys(plain, CHANGES_MAX + 2);
  const { credentials } = plain.names;
  const [latest, last] = [keys[0], keys[1]];
  if (latest === undefined || last === undefined) throw new Error('no keys');

  /** The rows that a fresh replica's first question gets. */
  const told = async () => {
    let answer: unknown[] | undefined;
    const callers = createCallers({
      database: {
        ...plain,
        async rows(statement, transaction) {
          const rows = await plain.rows(statement, transaction);
          if (STATEMENTS.changedKeys.test(statement.compile(plain.kysely).sql)) answer = rows;
          return rows;
        },
      },
    });
    await callers.identify(last.key);
    await until('the answer', () => answer !== undefined);
    await callers.close();
    return answer ?? [];
  };
  const change = (seconds: number, where: ReturnType<typeof sql>) =>
    plain.rows(
      sql`update ${credentials} set changed_at = clock_timestamp() - ${seconds} * interval '1 second' where ${where}`,
    );

  t.strictSame(await told(), [], 'nothing has');
  await change(50, sql`true`);
  await change(1, sql`id = ${latest.id}`);
  await change(55, sql`id = ${last.id}`);
  const rows = await told();
  t.equal(rows.length, CHANGES_MAX);
  const [stored] = await plain.rows(
    sql<{ hash: string }>`select key_hash as hash from ${credentials} where id = ${latest.id}`,
  );
  t.match(rows[0], stored);
  await change(61, sql`id <> ${latest.id}`);
  t.match(await told(), [stored], 'the others are past');
});

t.test('a key that somebody revoked by hand is refused within a second, too', async (t) => {
  const database = await testDatabase(t);
  const [key] = await manyKeys(database, 1);
  if (key === undefined) throw new Error('no key');
  const callers = createCallers({ database });
  t.teardown(() => callers.close());
  t.match(await callers.identify(key.key), { keyId: key.id });
  await database.rows(
    sql`update ${database.names.credentials} set revoked_at = clock_timestamp() where id = ${key.id}`,
  );
  const endedAt = performance.now();
  const late = (await lastUse(async () => ((await callers.identify(key.key)) === undefined ? 401 : 200))) - endedAt;
  t.ok(late < WITHIN_MS, `the last use was ${late} ms after it`);
});
