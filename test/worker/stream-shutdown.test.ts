import t from 'tap';
import { openStream } from '../support/event-stream.ts';
import { caller, OPERATOR_KEY, testServer, until } from '../support/harness.ts';
import { freshDatabase, startMain } from '../support/process.ts';
import { checkRefusal } from '../support/wire.ts';

const as = OPERATOR_KEY;

t.test('draining ends streams at once, complete, and begins none', async (t) => {
  const { app, call, environment, url } = await testServer(t, { streaming: { tickMs: 3_600_000 } }); // by nothing else
  const { id } = (await call('POST', '/v1/sessions', { as, body: { environment_id: environment.id } })).json;
  const streams = await Promise.all(Array.from({ length: 10 }, () => openStream(t, url, id)));
  app.drain();
  await until('their end', () => streams.every(({ state }) => state() !== 'open'));
  for (const stream of streams) t.strictSame([stream.state(), stream.rest()], ['ended', '']);
  t.equal(app.openStreams(), 0);
  checkRefusal(t, await call('GET', `/v1/sessions/${id}/events/stream`, { as }), 503, 'one that comes late');
});

for (const kind of ['that read', 'some of which have stopped to read'] as const) {
  t.test(`a server with 50 streams ${kind} ends by SIGTERM well within its grace`, async (t) => {
    // Where nobody is waited for far longer than a busy machine takes.
    const graceSeconds = kind === 'that read' ? 120 : 3;
    const server = await startMain(t, {
      DATABASE_URL: await freshDatabase(t),
      LEASEHOLD_API_KEY: OPERATOR_KEY,
      SHUTDOWN_GRACE_SECONDS: `${graceSeconds}`,
    });
    const call = caller(server.url, as);
    const environment = (await call('POST', '/v1/environments', { body: { name: 'ours' } })).json;
    const create = async () =>
      (await call('POST', '/v1/sessions', { body: { environment_id: environment.id } })).json.id as string;
    const sessions = await Promise.all(Array.from({ length: 5 }, create));
    const streams = await Promise.all(
      Array.from({ length: 50 }, (_, n) => openStream(t, server.url, sessions[n % 5] ?? '')),
    );
    const stalled = kind === 'that read' ? [] : streams.slice(0, 5);
    for (const stream of stalled) stream.pause();
    const content = [{ type: 'text', text: 'x'.repeat(stalled.length > 0 ? 8_000_000 : 10) }];
    for (const id of sessions) {
      const { status } = await call('POST', `/v1/sessions/${id}/events`, {
        body: { events: [{ type: 'user.message', content }] },
      });
      t.equal(status, 200);
    }
    const reading = streams.filter((stream) => !stalled.includes(stream));
    await until('the readers to have it', () => reading.every((stream) => stream.events().length === 2));

    const began = performance.now();
    server.child.kill('SIGTERM');
    await until('the end of those who read', () => reading.every(({ state }) => state() !== 'open'));
    for (const stream of reading) t.strictSame([stream.state(), stream.rest()], ['ended', '']);
    t.strictSame(await server.ended(), { code: 0, signal: null });
    const tookMs = performance.now() - began;
    // Whoever does not read is cut after 30 s where nothing ends sooner.
    t.ok(tookMs < (stalled.length > 0 ? 25_000 : (graceSeconds * 1_000) / 2), `${tookMs} ms`);
  });
}
