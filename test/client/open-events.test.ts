import t from 'tap';
import { createRemoteLocks, type OpenedEvent, openEvents } from '../../src/client/index.ts';
import { createControlClient } from '../../src/index.ts';
import { frailProxy } from '../support/frail-proxy.ts';
import { OPERATOR_KEY, testServer, until } from '../support/harness.ts';

const sleep = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Notes what comes, until it ends. */
function noted(events: AsyncIterable<OpenedEvent>) {
  const seen: OpenedEvent[] = [];
  const ended = (async () => {
    for await (const event of events) seen.push(event);
  })();
  return { seen, ended, count: (type: string) => seen.filter((event) => event.type === type).length };
}

t.test('events come as they happen, until the signal aborts', async (t) => {
  const { url, environment, environmentKey, queue, app } = await testServer(t);
  const stopped = new AbortController();
  const { signal } = stopped;
  const { seen, ended } = noted(openEvents({ baseUrl: `${url}/`, apiKey: environmentKey }, environment.id, { signal }));
  await until('the first two', () => seen.length === 2);
  queue.hint(environment.id, { type: 'lock_released', name: 'build' });
  queue.hint(environment.id, { type: 'stop_requested', workId: 'work_1' });
  await until('the others', () => seen.length === 4);
  t.strictSame(seen, [
    { type: 'attached' },
    { type: 'work_available' },
    { type: 'lock_released', name: 'build' },
    { type: 'stop_requested', work_id: 'work_1' },
  ]);
  stopped.abort();
  await ended;
  await until('it is closed', () => app.openStreams() === 0);
  t.strictSame(await noted(openEvents({ baseUrl: url, apiKey: 'x' }, environment.id, { signal })).ended, undefined);
});

t.test('who leaves the loop closes the connection', async (t) => {
  const { url, environment, app } = await testServer(t);
  for await (const { type } of createControlClient({ baseUrl: url, apiKey: OPERATOR_KEY }).openEvents(environment.id)) {
    if (type === 'work_available') break;
  }
  await until('it is closed', () => app.openStreams() === 0);
});

t.test('over cuts and refused connections it attaches anew, and says so', async (t) => {
  const { url, environment, environmentKey, queue } = await testServer(t);
  const proxy = await frailProxy(t, url);
  const stopped = new AbortController();
  const { ended, count } = noted(
    openEvents({ baseUrl: proxy.url, apiKey: environmentKey, sleep }, environment.id, { signal: stopped.signal }),
  );
  for (let times = 1; times <= 3; times++) {
    await until('it is attached', () => count('attached') === times && count('work_available') >= times);
    proxy.block(/^GET /);
    const tries = proxy.requests.length;
    proxy.cut();
    await until('it has tried in vain', () => proxy.requests.length > tries + 20);
    proxy.block(undefined);
  }
  await until('it is attached', () => count('attached') === 4);
  queue.hint(environment.id, { type: 'environment_paused' });
  await until('it hears', () => count('environment_paused') === 1);
  stopped.abort();
  await ended;
});

t.test('what is missing is named, in place of asking without it', async (t) => {
  const options = { baseUrl: 'http://127.0.0.1:9', apiKey: 'x' };
  const unset = undefined as unknown as string;
  for (const [given, environmentId, message] of [
    [{ ...options, apiKey: unset }, 'env_x', 'apiKey must be a text that is not empty'],
    [{ ...options, baseUrl: unset }, 'env_x', 'baseUrl must be a text that is not empty'],
    [{ ...options, baseUrl: '127.0.0.1:9' }, 'env_x', 'baseUrl must be an address, such as http://127.0.0.1:8080'],
    [options, unset, 'environmentId must be a text that is not empty'],
  ] as const) {
    await t.rejects(noted(openEvents(given, environmentId)).ended, new TypeError(message));
    t.throws(() => createRemoteLocks({ ...given, environmentId }), new TypeError(message));
  }
});

t.test('what the server refuses for good is thrown, also when it comes later', async (t) => {
  const { url, environment, call } = await testServer(t);
  const wrong = noted(openEvents({ baseUrl: url, apiKey: 'lhe_wrong', sleep }, environment.id));
  await t.rejects(wrong.ended, { name: 'ControlError', status: 401 });
  const apiKey = OPERATOR_KEY;
  const unknown = noted(openEvents({ baseUrl: url, apiKey, sleep }, 'env_unknown'));
  await t.rejects(unknown.ended, { name: 'ControlError', status: 404 });
  const away = noted(openEvents({ baseUrl: 'http://127.0.0.1:9', apiKey, sleep, retriesMax: 2 }, environment.id));
  await t.rejects(away.ended, { name: 'ControlError', type: 'connection_error' });
  const { count, ended } = noted(openEvents({ baseUrl: url, apiKey, sleep }, environment.id));
  const rejected = t.rejects(ended, { name: 'ControlError', status: 404 });
  await until('it is attached', () => count('work_available') === 1);
  t.equal((await call('DELETE', `/v1/environments/${environment.id}`, { as: apiKey })).status, 200);
  await rejected;
});
