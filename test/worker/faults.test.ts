import t, { type Test } from 'tap';
import { testServer, until } from '../support/harness.ts';
import { type FaultyProxy, faultyProxy } from '../support/faulty-proxy.ts';
import { testFolder } from '../support/process.ts';
import { agentSide, gate, officialWorker, textOf, untilStates } from '../support/agent-side.ts';

async function scene(t: Test, settings = {}) {
  const server = await testServer(t, { background: true, settings });
  const proxy = await faultyProxy(t, server.url);
  const folder = testFolder(t);
  const agent = await agentSide(server);
  const held = gate(folder);
  t.teardown(held.open);
  const start = () => officialWorker(t, server, { folder, baseURL: proxy.url });
  return { server, proxy, folder, agent, held, start };
}

const isResultPost = ({ method, path }: { method: string; path: string }) =>
  method === 'POST' && path.endsWith('/events');
const posts = (proxy: FaultyProxy) => proxy.seen.filter(isResultPost);

t.test('a stream that is cut between and during calls loses none and runs none twice', async (t) => {
  const { server, proxy, agent, held, start } = await scene(t);
  const worker = start();
  const cut = async () => {
    await until('the worker to be attached', () => proxy.openStreams() === 1);
    t.equal(proxy.cutStreams(), 1);
  };
  const note = (n: number) => ({ command: `echo ${n} >> order; cat order | tr '\\n' ' '` });
  await agent.results(await agent.call('bash', note(1)));
  for (const n of [2, 3]) {
    await cut();
    const [result, ...more] = await agent.results(await agent.call('bash', note(n)));
    t.equal(textOf(result).trim(), [1, 2, 3].slice(0, n).join(' '), 'sent while it was away');
    t.strictSame(more, []);
  }
  const long = await agent.call('bash', { command: held.command });
  await held.begun();
  await cut();
  const behind = await agent.call('bash', note(4)); // the worker reads nothing while it runs: it hears of this after its return
  held.open();
  t.equal((await agent.results(long)).length, 1);
  t.equal(textOf((await agent.results(behind))[0]).trim(), '1 2 3 4');
  await cut();
  await agent.say('done'); // said while it is away, too
  await untilStates(agent, server, 'stopped');
  t.equal(held.runs(), 1);
  t.equal((await agent.events('user.tool_result')).length, 5);
  t.equal(posts(proxy).length, 5, 'each result was posted once');
  t.notMatch(worker.complaints.join(), /reconcile|heartbeat|result|failed/);
});

t.test('a worker whose heartbeats are all answered only at the second attempt keeps its item', async (t) => {
  const { server, proxy, agent, held, start } = await scene(t, { leaseTtlSeconds: 2 });
  const isBeat = ({ path }: { path: string }) => path.endsWith('/heartbeat');
  proxy.dropWhere((passed) => isBeat(passed) && (passed.retryCount ?? '0') === '0');
  const call = await agent.call('bash', { command: held.command });
  const worker = start();
  await held.begun();
  await until('some beats', () => proxy.seen.filter(isBeat).length >= 6);
  held.open();
  t.equal((await agent.results(call)).length, 1);
  await agent.say('done');
  await untilStates(agent, server, 'stopped');
  const beats = proxy.seen.filter(isBeat);
  t.ok(beats.filter(({ dropped }) => dropped).length >= 3);
  t.strictSame([...new Set(beats.map(({ status }) => status))], [200], 'none was refused');
  t.equal(new Set(beats.map(({ path }) => path)).size, 1, 'one item, never handed out again');
  t.equal(held.runs(), 1);
  t.strictSame(worker.complaints, []);
});

t.test('a result whose answer is lost is posted again and adds nothing', async (t) => {
  const { server, proxy, agent, held, start } = await scene(t);
  let lost = 0;
  proxy.dropWhere((passed) => isResultPost(passed) && lost++ < 1);
  const worker = start();
  held.open();
  const call = await agent.call('bash', { command: held.command });
  await until('two posts', () => posts(proxy).length >= 2);
  await agent.say('done');
  await untilStates(agent, server, 'stopped');
  t.strictSame(
    posts(proxy).map(({ status, dropped }) => [status, dropped]),
    [
      [200, true],
      [200, false],
    ],
  );
  t.equal((await agent.results(call)).length, 1);
  t.equal((await agent.events()).length, 6, 'call, idle, result, running, message, idle');
  t.equal(held.runs(), 1);
  t.strictSame(worker.complaints, []);
});

t.test('so it is when the client gives up its retries and begins anew', async (t) => {
  const { server, proxy, agent, start } = await scene(t);
  let lost = 0;
  proxy.dropWhere((passed) => isResultPost(passed) && lost++ < 3);
  start();
  const call = await agent.call('bash', { command: 'echo ran >> runs; cat runs' });
  await until('four posts', () => posts(proxy).length >= 4);
  t.strictSame([...new Set(posts(proxy).map(({ status }) => status))], [200]);
  await agent.say('done');
  await untilStates(agent, server, 'stopped');
  const [result, ...more] = await agent.results(call);
  t.equal(textOf(result).trim(), 'ran');
  t.strictSame(more, []);
});
