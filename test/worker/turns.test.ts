import t from 'tap';
import { testServer } from '../support/harness.ts';
import { turn } from '../support/gates.ts';
import { testFolder } from '../support/process.ts';
import { agentSide, officialWorker, textOf } from '../support/agent-side.ts';

t.test('turns that begin as the worker of the one before ends are all served, each call once', async (t) => {
  const server = await testServer(t, { background: true, settings: { sweepIntervalMs: 50 } });
  const folder = testFolder(t);
  const agents = await Promise.all(Array.from({ length: 3 }, () => agentSide(server)));
  const workers = agents.map(() => officialWorker(t, server, { folder, maxIdleMs: 1 }));
  await Promise.all(
    agents.map(async (agent, n) => {
      for (let round = 1; round <= 5; round++) {
        const command = `echo ${round} >> rounds-${n}; cat rounds-${n} | tr '\\n' ' '`;
        const calls = await agent.send(
          { type: 'agent.tool_use', name: 'bash', input: { command } },
          { type: 'agent.tool_use', name: 'bash', input: { command: 'echo beside' } },
        );
        const [results, beside] = [await agent.results(calls[0]?.id ?? ''), await agent.results(calls[1]?.id ?? '')];
        t.equal(textOf(results[0]).trim(), Array.from({ length: round }, (_, before) => before + 1).join(' '));
        t.strictSame([results.length, beside.length, textOf(beside[0]).trim()], [1, 1, 'beside']);
        await agent.say('done');
        // From at once to some way into the worker's end.
        for (let turns = n * round * 10; turns > 0; turns--) await turn();
      }
    }),
  );
  t.strictSame(
    workers.flatMap(({ complaints }) => complaints),
    [],
  );
});
