import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { upstreamServer, vouchedIn } from '../support/application.ts';
import { ENGINES, rowOf, until } from '../support/harness.ts';
import { officialClient } from '../support/official-client.ts';
import { testFolder } from '../support/process.ts';
import { ownSession } from '../support/session-owner.ts';

const ENDS = {
  'its turn ended': { type: 'session.status_idle', stop_reason: { type: 'end_turn' } },
  'it terminated': { type: 'session.status_terminated' },
};

for (const engine of ENGINES) {
  for (const [how, ending] of Object.entries(ENDS)) {
    t.test(
      `${engine}: the official worker does a whole job of a session that an application owns; ${how}`,
      async (t) => {
        const server = await upstreamServer(t, { engine, background: true });
        const { application, database, environment, environmentKey, enqueue } = server;
        const owner = ownSession(application, 'session-1');
        const { client } = officialClient(t, server);
        const workdir = testFolder(t);
        const id = await enqueue('session-1');
        const leaving = new AbortController();
        const worker = client.beta.environments.work.worker({
          environmentId: environment.id,
          environmentKey,
          workdir,
          maxIdleMs: 200,
        });
        const ran = worker.run(leaving.signal).catch((error: unknown) => {
          if (!leaving.signal.aborted) throw error;
        });
        t.teardown(() => leaving.abort());

        const call = (command: string) =>
          owner.append({ type: 'agent.tool_use', name: 'bash', input: { command }, evaluated_permission: 'allow' });
        call('echo before > made.txt && cat made.txt');
        await until('the first result', () => owner.posted.length === 1);
        t.equal(owner.attachedCount(), 1, 'the worker is attached through this server');
        call('echo after >> made.txt && cat made.txt');
        await until('the second result', () => owner.posted.length === 2);
        t.match(owner.posted, [
          { type: 'user.tool_result', tool_use_id: 'sevt_1', content: [{ type: 'text', text: /before/ }] },
          { type: 'user.tool_result', content: [{ type: 'text', text: /before\nafter/ }] },
        ]);
        t.equal(readFileSync(join(workdir, 'made.txt'), 'utf8'), 'before\nafter\n');
        t.equal((await rowOf(database, id)).state, 'active');

        owner.append(ending);
        await until('the item to be stopped', async () => (await rowOf(database, id)).state === 'stopped');
        await until('the stream to be closed', () => owner.attachedCount() === 0);
        leaving.abort();
        await ran;
        const told = {
          caller: ['session'],
          'environment-id': [environment.id],
          'session-id': ['session-1'],
          'work-id': [id],
        };
        for (const arrived of application.arrived) t.strictSame(vouchedIn(arrived), told, arrived.url);
      },
    );
  }
}
