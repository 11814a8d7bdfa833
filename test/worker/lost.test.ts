import { sql } from 'kysely';
import t from 'tap';
import { lapse } from '../support/harness.ts';
import { heldCall } from '../support/held-call.ts';
import { startWorker } from '../support/process.ts';
import { itemStates, officialWorker, textOf, untilStates } from '../support/agent-side.ts';

t.test('a worker that is shut down during a call leaves it to another, without a word of anybody', async (t) => {
  const { server, folder, agent, held, call } = await heldCall(t);
  const first = officialWorker(t, server, { folder });
  await held.begun();
  await first.stop();
  t.strictSame(await agent.events('user.tool_result'), [], 'not answered');
  officialWorker(t, server, { folder });
  await held.begun(2);
  held.open();
  t.equal((await agent.results(call)).length, 1);
  await agent.say('done');
  await untilStates(agent, server, 'stopped', 'stopped');
});

t.test('a message hastens the worker that was to wait after a loss', async (t) => {
  const { server, folder, agent, held, call, item } = await heldCall(t);
  const first = officialWorker(t, server, { folder });
  await held.begun();
  await first.stop();
  await untilStates(agent, server, 'queued', 'stopped');
  const { rows, names } = server.database;
  const { id } = await item();
  await rows(sql`update ${names.workItems} set not_before = now() + interval '1 hour' where id = ${id}`);
  officialWorker(t, server, { folder });
  held.open();
  await agent.send({ type: 'user.message', content: [{ type: 'text', text: 'now' }] });
  t.equal((await agent.results(call)).length, 1);
  t.equal((await itemStates(agent, server)).length, 2, 'the same item');
});

t.test('what a worker ran that was killed is run by another after the lease, and answered once', async (t) => {
  const { server, folder, agent, held, call, item } = await heldCall(t, 'postgres', { sweepIntervalMs: 50 });
  const killed = startWorker(t, server, folder);
  await held.begun();
  killed.child.kill('SIGKILL');
  await killed.ended();
  officialWorker(t, server, { folder });
  t.equal(held.runs(), 1, 'the lease keeps others away');
  const { id } = await item();
  await lapse(server.database, id);
  await held.begun(2);
  t.not((await item()).id, id, 'under a new id');
  held.open();
  const [result, ...more] = await agent.results(call);
  t.match(textOf(result), /^went on/);
  t.strictSame(more, []);
  const next = await agent.call('bash', { command: 'cat runs' });
  t.equal(textOf((await agent.results(next))[0]).trim(), 'run\nrun', 'the second run left its mark');
  await agent.say('done');
  await untilStates(agent, server, 'stopped');
});

t.test(
  'of two workers that both ran a call the first result counts, and the late one is taken for a repeat',
  async (t) => {
    const { server, folder, agent, held, call, item } = await heldCall(t, 'postgres', {});
    const workers = [officialWorker(t, server, { folder })];
    await held.begun();
    await lapse(server.database, (await item()).id);
    workers.push(officialWorker(t, server, { folder }));
    await held.begun(2);
    held.open();
    t.equal((await agent.results(call)).length, 1);
    await agent.say('done');
    await untilStates(agent, server, 'stopped');
    for (const worker of workers) await worker.stop();
    t.equal((await agent.results(call)).length, 1);
    t.notMatch(workers.flatMap(({ complaints }) => complaints).join(), /result/, 'both posted theirs');
  },
);
