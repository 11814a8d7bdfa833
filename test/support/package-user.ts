/** What somebody who has the package writes: both doors, with their types. Prints the session that it was handed, and the work that a server took. */
import { createEnvironment, createQueue, type HandOut, IN_MEMORY, migrate, openDatabase } from 'leasehold';
import { ControlError, createControlClient, RemoteTools } from 'leasehold/client';

const database = await openDatabase({ dataDir: IN_MEMORY });
await migrate(database);
const queue = createQueue({ database });
const { id: environmentId } = await createEnvironment(database, { name: 'tools', type: 'self_hosted' });
await queue.transaction((transaction) => queue.enqueue({ environmentId, sessionId: 'session-1' }, transaction));
const handOut: HandOut | null = await queue.poll({ environmentId, workerId: 'me' });
console.log(handOut?.item.sessionId);
await queue.close();
await database.close();

const [baseUrl = '', apiKey = '', served = ''] = process.argv.slice(2);
const control = createControlClient({ baseUrl, apiKey });
const work = await control.enqueueWork(served, { data: { type: 'session', id: 'session-2' } });
console.log(work.data.id, work.state satisfies string);
// @ts-expect-error: the types are there, and not `any`
work.nothing;
await new RemoteTools({ baseUrl, apiKey }).attach('sesn_none').catch((error) => console.log(error instanceof Error));
await control.enqueueWork('env_none', { data: { type: 'session', id: '1' } }).catch((error) => {
  console.log(error instanceof ControlError);
});
