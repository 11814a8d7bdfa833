import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import type { Test } from 'tap';
import { OPERATOR_KEY, until } from './harness.ts';

/** Where an environment is served, be it by this process or by another. */
export type Place = {
  readonly url: string;
  readonly environment: { readonly id: string };
  readonly environmentKey: string;
};

// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects and fails where it is not there
export type Event = { id: string; type: string; [field: string]: any };

export type WorkerOptions = {
  readonly folder: string;
  readonly baseURL?: string;
  readonly maxIdleMs?: number;
  readonly tools?: Parameters<Anthropic['beta']['environments']['work']['worker']>[0]['tools'];
};

export type Worker = {
  /** What it warned of. */
  readonly complaints: string[];
  /** Ends it and waits for its end, as a deployment would. */
  stop(): Promise<void>;
};

/** The official worker in this process, serving until the test ends. */
export function officialWorker(t: Test, place: Place, options: WorkerOptions): Worker {
  const { folder, baseURL = place.url, maxIdleMs = 100, tools } = options;
  const complaints: string[] = [];
  const complain = (...what: unknown[]) => void complaints.push(what.map((one) => JSON.stringify(one)).join(' '));
  const ignore = () => {};
  const client = new Anthropic({
    baseURL,
    apiKey: null,
    authToken: null,
    logLevel: 'warn',
    logger: { error: complain, warn: complain, info: ignore, debug: ignore },
  });
  const stopping = new AbortController();
  const { id: environmentId } = place.environment;
  const { environmentKey } = place;
  const ended = client.beta.environments.work
    .worker({ environmentId, environmentKey, workdir: folder, maxIdleMs, ...(tools === undefined ? {} : { tools }) })
    .run(stopping.signal)
    .catch((error: unknown) => {
      if (!stopping.signal.aborted) complain('the worker ended', String(error));
    });
  const stop = async () => {
    stopping.abort();
    await ended;
  };
  t.teardown(stop);
  return { complaints, stop };
}

export type AgentSide = {
  readonly id: string;
  readonly client: Anthropic;
  /** Appends; answers them as they are stored. */
  send(...events: readonly object[]): Promise<Event[]>;
  /** Appends a call of a tool; answers its id. */
  call(name: string, input: object, fields?: object): Promise<string>;
  say(text: string): Promise<Event[]>;
  events(...types: readonly string[]): Promise<Event[]>;
  /** The results of a call, once there is one. */
  results(callId: string): Promise<Event[]>;
  status(): Promise<string>;
};

/** A session made as an agent loop makes it, with the official client. */
export async function agentSide(place: Place): Promise<AgentSide> {
  const client = new Anthropic({ baseURL: place.url, apiKey: OPERATOR_KEY, authToken: null, logLevel: 'off' });
  const { id } = await client.beta.sessions.create({ environment_id: place.environment.id, agent: 'agent' });
  const send: AgentSide['send'] = async (...events) => {
    const { data } = await client.beta.sessions.events.send(id, { events: events as never });
    return data as never;
  };
  const list: AgentSide['events'] = async (...types) => {
    const found: Event[] = [];
    for await (const event of client.beta.sessions.events.list(id, { limit: 100 })) found.push(event as never);
    return types.length === 0 ? found : found.filter(({ type }) => types.includes(type));
  };
  const resultsNow = async (callId: string) =>
    (await list('user.tool_result', 'user.custom_tool_result')).filter(
      (event) => (event.tool_use_id ?? event.custom_tool_use_id) === callId,
    );
  return {
    id,
    client,
    send,
    async call(name, input, fields = {}) {
      const [stored] = await send({ type: 'agent.tool_use', name, input, ...fields });
      return stored?.id ?? '';
    },
    say: (text) => send({ type: 'agent.message', content: [{ type: 'text', text }] }),
    events: list,
    async results(callId) {
      let found: Event[] = [];
      const isAnswered = async () => {
        // A server that is away is no answer yet.
        found = await resultsNow(callId).catch(() => []);
        return found.length > 0;
      };
      await until(`a result of ${callId}`, isAnswered);
      return found;
    },
    status: async () => (await client.beta.sessions.retrieve(id)).status,
  };
}

/** What a result says. */
export const textOf = (result: Event | undefined): string =>
  (result?.content ?? []).map((block: { text?: string }) => block.text ?? '').join('');

/** The states of the items of an environment, newest first. */
export async function itemStates({ client }: AgentSide, { environment }: Place): Promise<string[]> {
  const states: string[] = [];
  for await (const item of client.beta.environments.work.list(environment.id)) states.push(item.state);
  return states;
}

export const untilStates = (agent: AgentSide, place: Place, ...expected: readonly string[]): Promise<void> =>
  until(`the items to be ${expected}`, async () => (await itemStates(agent, place)).join() === expected.join());

/**
 * A command that leaves a line in `runs` when it begins and goes on when the test says so. It ends by itself in the end: the shell of a
 * killed worker outlives it.
 */
export function gate(folder: string) {
  const runs = join(folder, 'runs');
  const read = () => (existsSync(runs) ? readFileSync(runs, 'utf8').split('\n').length - 1 : 0);
  return {
    command: 'echo run >> runs; for i in $(seq 1200); do [ -e go ] && break; sleep 0.05; done; echo went on',
    runs: read,
    begun: (count = 1) => until(`the command was begun ${count} times`, () => read() >= count),
    open: () => writeFileSync(join(folder, 'go'), ''),
  };
}
