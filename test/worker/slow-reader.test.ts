import type { ServerResponse } from 'node:http';
import t from 'tap';
import { openStream } from '../support/event-stream.ts';
import { OPERATOR_KEY, testServer, until } from '../support/harness.ts';

const MIB = 1_048_576;
const as = OPERATOR_KEY;

t.test(
  'a client that stops to read costs a read of memory, holds up nobody, and has lost nothing when it goes on',
  async (t) => {
    const server = await testServer(t, { background: true });
    const responses = new Map<string, ServerResponse>();
    server.app.server.on('request', (request, response) => {
      if (request.headers.authorization === `Bearer ${server.environmentKey}`) responses.set('slow', response);
    });
    const { id } = (await server.call('POST', '/v1/sessions', { as, body: { environment_id: server.environment.id } }))
      .json;
    const fast = await openStream(t, server.url, id);
    const slow = await openStream(t, server.url, id, { as: server.environmentKey });
    const buffered = () => responses.get('slow')?.writableLength ?? Number.NaN;
    slow.pause();

    const sizes = [...Array(80).fill(MIB / 2), 9 * MIB, ...Array(2_000).fill(600)];
    let largest = 0;
    let sent = 0;
    const append = async (part: number[]) => {
      const events = part.map((size) => ({
        type: 'user.message',
        content: [{ type: 'text', text: `${sent++} `.padEnd(size, 'x') }],
      }));
      const { status } = await server.call('POST', `/v1/sessions/${id}/events`, { as, body: { events } });
      t.equal(status, 200);
      largest = Math.max(largest, buffered());
    };
    for (let n = 0; n < 80; n += 4) await append(sizes.slice(n, n + 4));
    t.ok(largest > MIB / 4, `it was full: ${largest}`);
    t.ok(largest < 2 * MIB, `no more than a read of it is in memory: ${largest}`);
    for (let n = 80; n < sizes.length; n += 500) await append(sizes.slice(n, n + 500));
    t.ok(largest < 2 * MIB, `no more than a read of it is in memory: ${largest}`);

    const count = sizes.length + 1; // and a status
    await until('the other reader to have all', () => fast.events().length >= count);
    t.ok(slow.events().length < count / 2);
    slow.resume();
    await until('it to have all', () => slow.events().length >= count);
    t.strictSame(
      slow.events().map((event) => event.id),
      fast.events().map((event) => event.id),
    );
    const texts = slow.events().flatMap(({ content }) => content?.[0].text ?? []);
    t.ok(
      texts.every((text: string, n) => text.startsWith(`${n} `) && text.length === sizes[n]),
      'whole and in order',
    );
    t.equal(slow.state(), 'open');
  },
);
