import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { betaAgentToolset20260401 } from '@anthropic-ai/sdk/tools/agent-toolset/node';
import t, { type Test } from 'tap';
import { testServer } from '../support/harness.ts';
import { testFolder } from '../support/process.ts';
import {
  agentSide,
  itemStates,
  officialWorker,
  textOf,
  untilStates,
  type WorkerOptions,
} from '../support/agent-side.ts';

async function scene(t: Test) {
  const server = await testServer(t, { background: true });
  const folder = testFolder(t);
  const weighed: string[] = [];
  const weigh = betaTool({
    name: 'weigh',
    description: 'Weighs a word',
    inputSchema: { type: 'object', properties: { word: { type: 'string' } }, required: ['word'] },
    run({ word }: { word: string }) {
      weighed.push(word);
      return `${word.length} g`;
    },
  } as never);
  const tools: WorkerOptions['tools'] = (context) => [...betaAgentToolset20260401(context), weigh as never];
  const agent = await agentSide(server);
  const start = () => officialWorker(t, server, { folder, tools });
  const custom = async (name: string, word: string, ...before: object[]) => {
    const sent = await agent.send(...before, { type: 'agent.custom_tool_use', name, input: { word } });
    return sent.at(-1)?.id ?? '';
  };
  return { server, folder, agent, weighed, start, custom };
}

const message = { type: 'user.message', content: [{ type: 'text', text: 'go' }] };
const isThere = (folder: string, name: string) => existsSync(join(folder, name));

t.test("a worker's own tool answers a call of it", async (t) => {
  const { server, agent, weighed, start } = await scene(t);
  const worker = start();
  const [result] = await agent.results(await agent.call('weigh', { word: 'stone' }));
  t.match(result, { type: 'user.tool_result', is_error: false });
  t.equal(textOf(result), '5 g');
  t.strictSame(weighed, ['stone']);
  await agent.say('done');
  await untilStates(agent, server, 'stopped');
  t.strictSame(worker.complaints, []);
});

t.test(
  'a custom call waits for its owner, arms nobody alone, and arms the worker that is known to own it',
  async (t) => {
    const { server, agent, weighed, start, custom } = await scene(t);
    const first = await custom('weigh', 'a');
    await server.queue.sweep();
    t.strictSame(await itemStates(agent, server), [], 'nobody is known to own it');
    const worker = start();
    await agent.send(message);
    const [result] = await agent.results(first);
    t.match(result, { type: 'user.custom_tool_result', custom_tool_use_id: first, is_error: false });
    await agent.say('done');
    await untilStates(agent, server, 'stopped');

    const second = await custom('weigh', 'bcd');
    t.equal(textOf((await agent.results(second))[0]), '3 g', 'it is known now');
    await agent.say('done');
    await untilStates(agent, server, 'stopped', 'stopped');

    const foreign = await custom('book_flight', 'x', message);
    await agent.results(await agent.call('weigh', { word: 'ef' })); // the worker has seen both
    t.match((await agent.client.beta.sessions.retrieve(agent.id)).status, 'idle');
    await agent.send({ type: 'user.custom_tool_result', custom_tool_use_id: foreign, content: [] });
    t.equal((await agent.results(foreign)).length, 1);
    t.strictSame(weighed, ['a', 'bcd', 'ef']);
    t.equal(await agent.status(), 'running');
    await agent.say('done');
    await untilStates(agent, server, 'stopped', 'stopped', 'stopped');
    t.strictSame(worker.complaints, []);
  },
);

t.test('a call that is asked for runs once allowed, and never when denied', async (t) => {
  const { server, folder, agent, start } = await scene(t);
  const ask = (name: string) =>
    agent.call('bash', { command: `touch ${name}; echo ${name}` }, { evaluated_permission: 'ask' });
  const confirm = (id: string, result: 'allow' | 'deny') =>
    agent.send({ type: 'user.tool_confirmation', tool_use_id: id, result });
  const early = await ask('early');
  await server.queue.sweep();
  t.strictSame(await itemStates(agent, server), [], 'nobody could run it yet');
  await confirm(early, 'allow');
  const worker = start();
  await agent.results(early);
  t.ok(isThere(folder, 'early'));

  // From here on a worker is attached and holds what is asked for.
  const [allowed, denied] = [await ask('allowed'), await ask('denied')];
  const marker = await agent.call('bash', { command: 'echo seen' });
  await agent.results(marker);
  t.notOk(isThere(folder, 'allowed') || isThere(folder, 'denied'), 'held');
  await confirm(denied, 'deny');
  await confirm(allowed, 'allow');
  await agent.results(allowed);
  t.ok(isThere(folder, 'allowed'));
  await agent.call('bash', { command: 'touch forbidden' }, { evaluated_permission: 'deny' });
  t.equal(await agent.status(), 'running', 'nothing is left to wait for');
  await agent.results(await agent.call('bash', { command: 'echo last' }));
  t.notOk(isThere(folder, 'denied') || isThere(folder, 'forbidden'), 'never run');
  await agent.say('done');
  await untilStates(agent, server, 'stopped');
  t.strictSame(worker.complaints, []);
  t.equal((await agent.events('user.tool_result')).length, 4);
});

t.test('a call that is denied while its worker is away is not run when one comes', async (t) => {
  const { server, folder, agent, start } = await scene(t);
  const [held] = await agent.send(
    { type: 'agent.tool_use', name: 'bash', input: { command: 'touch denied' }, evaluated_permission: 'ask' },
    message,
  );
  await agent.send({ type: 'user.tool_confirmation', tool_use_id: held?.id, result: 'deny', deny_message: 'no' });
  start();
  await agent.results(await agent.call('bash', { command: 'echo here' }));
  await agent.say('done');
  await untilStates(agent, server, 'stopped');
  t.notOk(isThere(folder, 'denied'));
});
