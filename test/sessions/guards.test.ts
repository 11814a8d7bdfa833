import t from 'tap';
import { archiveEnvironment, deleteEnvironment } from '../../src/control/change-environment.ts';
import { createEnvironment } from '../../src/control/environments.ts';
import { within } from '../../src/db/connect.ts';
import { createSession } from '../../src/sessions/create.ts';
import type { LockedSession } from '../../src/sessions/lock.ts';
import { lockSession } from '../../src/sessions/lock.ts';
import { statusToStore, storeEvents } from '../../src/sessions/store.ts';
import { testDatabase, testServer } from '../support/harness.ts';
import { hold, replicas } from '../support/interleave.ts';
import { everything, relayPlace, TOOL } from '../support/sessions.ts';

const caught = (promise: Promise<unknown>) => promise.catch((error: unknown) => error);

t.test('postgres: what was read without its lock is stored only as long as nothing came after it', async (t) => {
  const server = await testServer(t);
  const { database } = server;
  const place = await relayPlace(server);
  const id = await place.session();
  const read = (await database.transaction((transaction) =>
    lockSession(within(database, transaction), id),
  )) as LockedSession;
  await place.append(id, TOOL);
  const before = await everything(database);
  const event = statusToStore({ type: 'session.status_running' }, read.now);
  await t.rejects(storeEvents(database, read, [event], read, read), {
    message: /was changed by somebody who had not locked it/,
  });
  t.equal(await everything(database), before);
});

t.test('postgres: a session and the end of its environment: whichever is first, the other is told', async (t) => {
  const database = await testDatabase(t);
  const [replica] = await replicas(t, database, 1);
  const other = replica?.database ?? database;
  const place = async (name: string) => (await createEnvironment(database, { name, type: 'self_hosted' })).id;

  const archived = await place('archived');
  const archiving = await hold(t, database, (bound) => archiveEnvironment(bound, archived));
  t.match(
    await createSession(other, { environmentId: archived }),
    { session: { status: 'idle' } },
    'not archived yet: nobody waits',
  );
  await archiving.commit();
  t.match(await caught(createSession(other, { environmentId: archived })), { code: 'environment_archived' });

  const deleted = await place('deleted');
  const deleting = await hold(t, database, (bound) => deleteEnvironment(bound, deleted));
  const late = caught(createSession(other, { environmentId: deleted }));
  await deleting.untilBlocked();
  await deleting.commit();
  t.match(await late, { code: 'environment_not_found' });

  const taken = await place('taken along');
  const creating = await hold(t, database, (bound) => createSession(bound, { environmentId: taken }));
  const gone = deleteEnvironment(other, taken);
  await creating.untilBlocked();
  await creating.commit();
  await gone;
  t.equal(await everything(database).then((all) => all.includes(creating.answer.session.id)), false);
});
