import type { Environment } from '../../src/control/environments.ts';
import { type Answer, type CallOptions, OPERATOR_KEY, type Server } from './harness.ts';
import { newDesk } from './desk.ts';
import { along, type Item, type RowName, sessionsTokenOf } from './places.ts';

/** One hand-out, and what its holder shows. */
export type Held = Item & { readonly sessionsToken: string };

/** A desk of a test's own, and the calls of those who hold its items. */
export async function newBench(server: Server, type?: Environment['type']) {
  const desk = await newDesk(server, type);
  const work = `/control/v1/environments/${desk.id}/work`;
  const call = (method: string, path: string, as: string, options: CallOptions = {}): Promise<Answer> =>
    server.call(method, `${work}${path}`, { as, ...options });
  const holder = ({ id, sessionsToken }: Held) => ({
    release: (delayMs?: number, options?: CallOptions) =>
      call('POST', `/${id}/release`, sessionsToken, {
        ...(delayMs === undefined ? {} : { body: { delay_ms: delayMs } }),
        ...options,
      }),
    report: (body: object, options?: CallOptions) => call('PATCH', `/${id}`, sessionsToken, { body, ...options }),
    result: () => call('GET', `/${id}/result`, sessionsToken),
  });
  return {
    ...desk,
    ...{ call, holder },
    /** The next item, brought on to a row of the contract's table: those of a hand-out. */
    async take(row: RowName = 'active, lease live', query = ''): Promise<Held> {
      const polled = await desk.poll(query);
      if (polled.json === null) throw new Error('nothing was handed out');
      const item = await along(desk.place, { id: polled.json.id, token: null }, row, true);
      return { ...item, sessionsToken: sessionsTokenOf(polled) };
    },
    history: async (id: string) => (await call('GET', `/${id}/history`, OPERATOR_KEY)).json,
    list: async (query = '') => (await call('GET', query, OPERATOR_KEY)).json.data,
    result: (id: string, as: string = OPERATOR_KEY) => call('GET', `/${id}/result`, as),
  };
}

export type Bench = Awaited<ReturnType<typeof newBench>>;
