import t, { type Test } from 'tap';
import { caller, OPERATOR_KEY } from '../support/harness.ts';
import { freshDatabase, startMain, testFolder } from '../support/process.ts';
import { agentSide, gate, officialWorker, type Place, textOf, untilStates } from '../support/agent-side.ts';

/** A server as a process, with an environment, that can be started again at the same address. */
async function restartable(t: Test) {
  const variables = {
    DATABASE_URL: await freshDatabase(t),
    LEASEHOLD_API_KEY: OPERATOR_KEY,
    SWEEP_INTERVAL_MS: '50',
  };
  let main = await startMain(t, variables);
  const { url } = main;
  const call = caller(url, OPERATOR_KEY);
  const { id } = (await call('POST', '/v1/environments', { body: { name: 'ours' } })).json;
  const { key } = (await call('POST', `/control/v1/environments/${id}/keys`, { body: { name: 'workers' } })).json;
  const place: Place = { url, environment: { id }, environmentKey: key };
  return {
    place,
    async end(signal: 'SIGTERM' | 'SIGKILL') {
      main.child.kill(signal);
      return main.ended();
    },
    async start() {
      main = await startMain(t, { ...variables, PORT: new URL(url).port });
    },
  };
}

for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
  t.test(`a job is done that a server left by ${signal} in its middle and came back to`, async (t) => {
    const { place, end, start } = await restartable(t);
    const folder = testFolder(t);
    const agent = await agentSide(place);
    const held = gate(folder);
    t.teardown(held.open);
    const call = await agent.call('bash', { command: held.command });
    const worker = officialWorker(t, place, { folder });
    await held.begun();
    const began = performance.now();
    const ended = await end(signal);
    t.strictSame(ended, signal === 'SIGTERM' ? { code: 0, signal: null } : { code: null, signal });
    if (signal === 'SIGTERM') t.ok(performance.now() - began < 8_000, 'it does not wait for its grace to be over');
    held.open(); // its result finds nobody
    await start();
    const [result, ...more] = await agent.results(call);
    t.match(textOf(result), /^went on/);
    t.strictSame(more, []);
    t.equal(held.runs(), 1);
    const next = await agent.call('bash', { command: 'cat runs' });
    t.equal(textOf((await agent.results(next))[0]).trim(), 'run');

    await end(signal); // and between calls
    await start();
    const last = await agent.call('bash', { command: 'echo last' });
    t.equal((await agent.results(last)).length, 1);
    await agent.say('done');
    await untilStates(agent, place, 'stopped');
    t.equal((await agent.events('user.tool_result')).length, 3);
    t.notMatch(worker.complaints.join('\n'), /failed to send|the worker ended/);
  });
}
