import type { Test } from 'tap';
import { type RemoteSession, RemoteTools, type RemoteToolsOptions, type SessionEvent } from '../../src/client/index.ts';
import { OPERATOR_KEY, type Server, type ServerOptions, testServer, until } from './harness.ts';

export type Remote = Server & {
  readonly tools: RemoteTools;
  /** Another client of the same server, perhaps by another way. */
  client(options?: Partial<RemoteToolsOptions>): RemoteTools;
  /** What is stored of a session. */
  eventsOf(hands: Pick<RemoteSession, 'id'>, type?: SessionEvent['type']): Promise<SessionEvent[]>;
  /** The ids of the first so many calls, once they are there. */
  untilCalled(hands: Pick<RemoteSession, 'id'>, count?: number): Promise<string[]>;
  /** A result as a worker posts it; its status. */
  answer(hands: Pick<RemoteSession, 'id'>, callId: string, result?: Result): Promise<number>;
};

export type Result = string | { content?: readonly object[]; is_error?: boolean };

/** A server with sessions, and the agent's side of them. Nobody polls: a test answers calls, or starts a worker. */
export async function remoteServer(t: Test, options: ServerOptions = {}): Promise<Remote> {
  const server = await testServer(t, options);
  const client = (given: Partial<RemoteToolsOptions> = {}) =>
    new RemoteTools({ baseUrl: server.url, apiKey: OPERATOR_KEY, ...given });

  const eventsOf: Remote['eventsOf'] = async ({ id }, type) => {
    const types = type === undefined ? '' : `&types[]=${type}`;
    return (await server.call('GET', `/v1/sessions/${id}/events?limit=1000${types}`)).json.data;
  };
  return {
    ...server,
    tools: client(),
    client,
    eventsOf,
    async untilCalled(hands, count = 1) {
      let calls: SessionEvent[] = [];
      await until(`${count} calls`, async () => {
        calls = await eventsOf(hands, 'agent.tool_use');
        return calls.length >= count;
      });
      return calls.map(({ id }) => id);
    },
    async answer({ id }, callId, result = 'done') {
      const fields = typeof result === 'string' ? { content: [{ type: 'text', text: result }] } : result;
      const events = [{ type: 'user.tool_result', tool_use_id: callId, ...fields }];
      return (await server.call('POST', `/v1/sessions/${id}/events`, { body: { events } })).status;
    },
  };
}
