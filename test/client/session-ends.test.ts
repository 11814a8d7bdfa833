import { sql } from 'kysely';
import t from 'tap';
import { rearmSessions } from '../../src/sessions/rearm.ts';
import { sessionTopic } from '../../src/sessions/session.ts';
import { frailProxy } from '../support/frail-proxy.ts';
import { OPERATOR_KEY, until } from '../support/harness.ts';
import { type Remote, remoteServer } from '../support/remote.ts';

const STREAM = /^GET \/v1\/sessions\/[^/]+\/events\/stream$/;
const as = OPERATOR_KEY;

/** Its last worker was lost, and so were all before it. */
async function exhaust({ database, queue }: Remote, { id }: { id: string }): Promise<void> {
  const { sessions, workItems } = database.names;
  await database.rows(sql`delete from ${workItems} where session_id = ${id}`);
  await database.rows(sql`update ${sessions} set arm_count = 10 where id = ${id}`);
  for (const topic of (await rearmSessions(database)).topics) queue.wake(topic);
}

t.test('a session that is archived, by whomever, rejects what is open and takes no more calls', async (t) => {
  const server = await remoteServer(t);
  const bodies: string[] = [];
  const tools = server.client({
    fetch(url, init) {
      bodies.push(String(init?.body));
      return fetch(url, init);
    },
  });
  const hands = await tools.session(server.environment.id);
  const calls = [hands.call('bash', { n: 1 }), hands.call('bash', { n: 2 })];
  const rejected = calls.map((call) => t.rejects(call, { name: 'RemoteToolError', code: 'terminated' }));
  await server.untilCalled(hands, 2);
  await server.call('POST', `/v1/sessions/${hands.id}/archive`, { as });
  await Promise.all(rejected);
  await t.rejects(hands.call('bash'), { name: 'RemoteToolError', code: 'terminated' });
  t.notOk(
    bodies.some((body) => body.includes('user.tool_confirmation')),
    'there is nothing to withdraw',
  );
});

t.test('a session that is deleted rejects what is open, heard of at once or when the way to it is back', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const tools = server.client({ baseUrl: proxy.url, sleep: async () => {} });
  for (const isCut of [false, true]) {
    const hands = await tools.session(server.environment.id);
    const rejected = t.rejects(hands.call('bash'), { name: 'RemoteToolError', code: 'deleted' });
    await server.untilCalled(hands);
    if (isCut) {
      proxy.block(STREAM);
      proxy.cut();
    }
    await server.call('DELETE', `/v1/sessions/${hands.id}`, { as });
    proxy.block(undefined);
    await rejected;
    await t.rejects(hands.call('bash'), { name: 'RemoteToolError', code: 'deleted' });
    await hands.close();
  }
});

t.test('calls whose workers are lost again and again are rejected, and withdrawn', async (t) => {
  const server = await remoteServer(t);
  const hands = await server.tools.session(server.environment.id);
  const rejected = t.rejects(hands.call('bash'), { name: 'RemoteToolError', code: 'retries_exhausted' });
  await server.untilCalled(hands);
  await exhaust(server, hands);
  await rejected;
  await until('it is withdrawn', async () => (await server.eventsOf(hands, 'user.tool_confirmation')).length === 1);
});

t.test('that a session had given up before is nothing to a new call', async (t) => {
  const server = await remoteServer(t);
  const first = await server.tools.session(server.environment.id);
  await first.send([{ type: 'agent.tool_use', name: 'bash', input: {} }]);
  await exhaust(server, first);
  // From its beginning: what was before the call is heard of after the call began.
  const hands = await server.tools.attach(first.id);
  const call = hands.call('bash', { n: 2 });
  const [, callId = ''] = await server.untilCalled(hands, 2);
  server.queue.wake(sessionTopic(hands.id));
  await server.answer(hands, callId, 'another worker came');
  t.equal((await call).text, 'another worker came');
});

t.test(
  'closing ends the session and rejects what is open; once more, or in place of it at the end of a block, too',
  async (t) => {
    const server = await remoteServer(t);
    const statusOf = async ({ id }: { id: string }) => (await server.call('GET', `/v1/sessions/${id}`)).json.status;
    const hands = await server.tools.session(server.environment.id);
    const rejected = t.rejects(hands.call('bash'), { code: 'terminated' });
    await server.untilCalled(hands);
    await hands.close();
    await rejected;
    t.equal(await statusOf(hands), 'terminated');
    await hands.close();

    const used = await (async () => {
      await using scoped = await server.tools.session(server.environment.id);
      return scoped;
    })();
    t.equal(await statusOf(used), 'terminated');
  },
);
