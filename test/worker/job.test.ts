import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { ENGINES, testServer } from '../support/harness.ts';
import { testFolder } from '../support/process.ts';
import { agentSide, officialWorker, textOf, untilStates } from '../support/agent-side.ts';

for (const engine of ENGINES) {
  t.test(
    `${engine}: an official worker serves a session, ends when it is idle, and serves its next turn`,
    async (t) => {
      const server = await testServer(t, { engine, background: true });
      const folder = testFolder(t);
      const agent = await agentSide(server);
      t.equal(await agent.status(), 'idle');
      const first = await agent.call('bash', { command: 'echo one > notes.txt; pwd' });
      t.equal(await agent.status(), 'idle', 'it waits for a result');
      const worker = officialWorker(t, server, { folder });

      const [made, ...moreMade] = await agent.results(first);
      t.equal(textOf(made).trim(), folder);
      t.equal(await agent.status(), 'running', "it is the agent's turn");
      const edit = await agent.call('edit', {
        file_path: join(folder, 'notes.txt'),
        old_string: 'one',
        new_string: 'two',
      });
      const [edited] = await agent.results(edit);
      t.equal(edited?.is_error, false, textOf(edited));
      const last = await agent.call('bash', { command: 'cat notes.txt' });
      const [read] = await agent.results(last);
      t.equal(textOf(read).trim(), 'two');
      t.equal(readFileSync(join(folder, 'notes.txt'), 'utf8'), 'two\n');
      t.strictSame(moreMade, []);

      await agent.say('done');
      t.equal(await agent.status(), 'idle');
      await untilStates(agent, server, 'stopped');
      const requires = { type: 'requires_action', event_ids: [first] };
      const types = (await agent.events()).map(({ type, stop_reason }) => (stop_reason ? [type, stop_reason] : type));
      t.strictSame(types, [
        'agent.tool_use',
        ['session.status_idle', requires],
        'user.tool_result',
        'session.status_running',
        'agent.tool_use',
        ['session.status_idle', { ...requires, event_ids: [edit] }],
        'user.tool_result',
        'session.status_running',
        'agent.tool_use',
        ['session.status_idle', { ...requires, event_ids: [last] }],
        'user.tool_result',
        'session.status_running',
        'agent.message',
        ['session.status_idle', { type: 'end_turn' }],
      ]);

      await agent.send({ type: 'user.message', content: [{ type: 'text', text: 'once more' }] });
      const again = await agent.call('bash', { command: 'echo three' });
      t.match(textOf((await agent.results(again))[0]), /^three/);
      await agent.say('done');
      await untilStates(agent, server, 'stopped', 'stopped');
      t.strictSame(worker.complaints, []);
      t.equal((await agent.events('user.tool_result')).length, 4);
    },
  );
}
