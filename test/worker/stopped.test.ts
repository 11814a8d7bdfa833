import t, { type Test } from 'tap';
import { ENGINES, type Engine, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { startWorker, testFolder } from '../support/process.ts';
import { agentSide, gate, itemStates, officialWorker, textOf, untilStates } from '../support/agent-side.ts';

/** Beats come every second: the worker hears soon of what became of its item. */
const settings = { leaseTtlSeconds: 2, sweepIntervalMs: 50 };

async function scene(t: Test, engine: Engine = 'postgres', overrides: object = settings) {
  const server = await testServer(t, { engine, background: true, settings: overrides });
  const folder = testFolder(t);
  const agent = await agentSide(server);
  const held = gate(folder);
  const call = await agent.call('bash', { command: held.command });
  t.teardown(held.open); // before the folder goes, or its shell waits on
  const item = async () => (await server.call('GET', server.work('?limit=1'))).json.data[0];
  const stop = async (force: boolean) =>
    (await server.call('POST', server.work(`/${(await item()).id}/stop`), { as: OPERATOR_KEY, body: { force } }))
      .status;
  return { server, folder, agent, held, call, item, stop };
}

for (const engine of ENGINES) {
  for (const force of engine === 'postgres' ? [false, true] : [false]) {
    const how = force ? 'force-stops' : 'gracefully stops';
    t.test(
      `${engine}: what an operator ${how} during a call rests until a message, and is answered once`,
      async (t) => {
        const { server, folder, agent, held, call, stop } = await scene(t, engine);
        const worker = officialWorker(t, server, { folder });
        await held.begun();
        t.equal(await stop(force), 204);
        await untilStates(agent, server, 'stopped');
        for (let pass = 0; pass < 3; pass++) await server.queue.sweep();
        t.strictSame(await itemStates(agent, server), ['stopped'], 'not enqueued again by itself');
        t.strictSame(await agent.events('user.tool_result'), [], 'not answered');
        t.equal(held.runs(), 1);

        await agent.send({ type: 'user.message', content: [{ type: 'text', text: 'go on' }] });
        t.equal((await itemStates(agent, server)).length, 2, 'enqueued with the message');
        await held.begun(2);
        held.open();
        const [result, ...more] = await agent.results(call);
        t.match(textOf(result), /^went on/);
        t.strictSame(more, []);
        await agent.say('done');
        await untilStates(agent, server, 'stopped', 'stopped');
        t.equal(held.runs(), 2);
        await worker.stop();
      },
    );
  }
}

t.test('an interrupt arms a session that an operator stopped, as a message does', async (t) => {
  const { server, folder, agent, held, call, stop } = await scene(t);
  officialWorker(t, server, { folder });
  await held.begun();
  await stop(false);
  await untilStates(agent, server, 'stopped');
  held.open();
  await agent.send({ type: 'user.interrupt' });
  t.equal((await agent.results(call)).length, 1);
});

t.test('a worker that is shut down during a call leaves it to another, without a word of anybody', async (t) => {
  const { server, folder, agent, held, call } = await scene(t);
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

t.test('what a worker ran that was killed is run by another after the lease, and answered once', async (t) => {
  const { server, folder, agent, held, call, item } = await scene(t, 'postgres', { sweepIntervalMs: 50 });
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
    const { server, folder, agent, held, call, item } = await scene(t, 'postgres', {});
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
