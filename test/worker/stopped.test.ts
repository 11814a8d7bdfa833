import t from 'tap';
import { ENGINES } from '../support/harness.ts';
import { heldCall } from '../support/held-call.ts';
import { itemStates, officialWorker, textOf, untilStates } from '../support/agent-side.ts';

for (const engine of ENGINES) {
  for (const force of engine === 'postgres' ? [false, true] : [false]) {
    const how = force ? 'force-stops' : 'gracefully stops';
    t.test(
      `${engine}: what an operator ${how} during a call rests until a message, and is answered once`,
      async (t) => {
        const { server, folder, agent, held, call, stop } = await heldCall(t, engine);
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
  const { server, folder, agent, held, call, stop } = await heldCall(t);
  officialWorker(t, server, { folder });
  await held.begun();
  await stop(false);
  await untilStates(agent, server, 'stopped');
  held.open();
  await agent.send({ type: 'user.interrupt' });
  t.equal((await agent.results(call)).length, 1);
});

t.test('a message ends the rest for good: the next worker that is lost is followed by itself', async (t) => {
  const { server, folder, agent, held, call, stop } = await heldCall(t);
  const first = officialWorker(t, server, { folder });
  await held.begun();
  await stop(true);
  await untilStates(agent, server, 'stopped');
  await server.queue.sweep(); // it rests
  await agent.send({ type: 'user.message', content: [{ type: 'text', text: 'go on' }] });
  await held.begun(2);
  await first.stop();
  officialWorker(t, server, { folder });
  await held.begun(3);
  held.open();
  t.equal((await agent.results(call)).length, 1);
});
