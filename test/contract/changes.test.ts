import t, { type Test } from 'tap';
import { createCallers } from '../../src/control/credentials.ts';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import type { Database } from '../../src/db/connect.ts';
import { buildApp } from '../../src/http/app.ts';
import { type ChangeAnswer, change } from '../../src/http/changes.ts';
import { QueueError } from '../../src/queue/errors.ts';
import { rowCounts } from '../support/changes.ts';
import { caller, ENGINES, OPERATOR_KEY, testDatabase } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

type Act = (database: Database) => Promise<ChangeAnswer<unknown>>;

/** A server with one route more, whose act is the test's. */
async function serverOf(t: Test, database: Database) {
  let act: Act = async () => ({ status: 200, body: null });
  const queue = createQueue({ database });
  const app = buildApp({
    queue,
    database,
    callers: createCallers({ database, operatorKey: OPERATOR_KEY }),
    publicUrl: () => '',
    beforeRoutes: (app) =>
      void app.route({
        method: 'POST',
        url: '/control/v1/test',
        config: { access: 'operator' },
        schema: { operationId: 'test' },
        handler: async (request) => (await change(database, request, (bound) => act(bound))).body,
      }),
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(async () => {
    app.server.closeAllConnections();
    await app.close();
    await queue.close();
  });
  return (key: string, next: Act) => {
    act = next;
    return caller(url, OPERATOR_KEY)('POST', '/control/v1/test', { headers: { 'idempotency-key': key } });
  };
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const database = await testDatabase(t, engine);
    const ask = await serverOf(t, database);
    const write = (bound: Database, name: string) => createEnvironment(bound, { name, type: 'self_hosted' });

    t.test('a refusal undoes what was written before it, and is recorded and answered again', async (t) => {
      const before = await rowCounts(database);
      const refusing: Act = async (bound) => {
        await write(bound, 'refused');
        throw new QueueError('precondition_failed', 'not now', { details: { error_code: 'why' } });
      };
      const first = await ask('refused', refusing);
      checkRefusal(t, first, 412, 'refused');
      t.strictSame(await rowCounts(database), { ...before, idempotencyKeys: 1, auditLog: 1 });
      const again = await ask('refused', async () => ({ status: 200, body: 'acted' }));
      checkRefusal(t, again, 412, 'again');
      t.strictSame(again.json.error, first.json.error, 'with message and details');
    });

    t.test('a refusal by a failed statement is recorded, though its transaction is lost', async (t) => {
      await write(database, 'taken');
      const before = await rowCounts(database);
      const failing: Act = async (bound) => {
        await bound
          .rows(
            database.kysely
              .insertInto('environments')
              .values({ id: 'env_taken', name: 'taken', description: null, type: 'cloud' }),
          )
          .catch(() => {
            throw new QueueError('conflict', 'taken');
          });
        return { status: 200, body: null };
      };
      checkRefusal(t, await ask('taken', failing), 409, 'taken');
      const { idempotencyKeys = 0, auditLog = 0 } = before;
      t.strictSame(await rowCounts(database), {
        ...before,
        idempotencyKeys: idempotencyKeys + 1,
        auditLog: auditLog + 1,
      });
    });

    const faults: [string, Error, number][] = [
      ['unavailable', new QueueError('unavailable', 'try again'), 503],
      ['a bug', new Error('internal text'), 500],
    ];
    for (const [what, error, status] of faults) {
      t.test(`${what} leaves nothing, and the repeat acts`, async (t) => {
        const before = await rowCounts(database);
        const failing: Act = async (bound) => {
          await write(bound, what);
          throw error;
        };
        checkRefusal(t, await ask(what, failing), status, what);
        t.strictSame(await rowCounts(database), before);
        const again = await ask(what, async (bound) => ({
          status: 200,
          body: { name: (await write(bound, what)).name },
        }));
        t.equal(again.status, 200);
        t.strictSame(again.json, { name: what });
      });
    }
  });
}
