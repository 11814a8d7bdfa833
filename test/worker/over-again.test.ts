import t from 'tap';
import { agentSide, officialWorker, untilStates } from '../support/agent-side.ts';
import { testServer } from '../support/harness.ts';
import { testFolder } from '../support/process.ts';

t.test('a worker leaves, too, where something is said after the turn was over', async (t) => {
  for (const last of [
    { type: 'agent.message', content: [{ type: 'text', text: 'bye' }] },
    { type: 'user.interrupt' },
  ]) {
    const server = await testServer(t, { background: true });
    const agent = await agentSide(server);
    const call = await agent.call('bash', { command: 'true' });
    officialWorker(t, server, { folder: testFolder(t) });
    await agent.results(call);
    await agent.say('done');
    await agent.send(last);
    await untilStates(agent, server, 'stopped');
  }
});
