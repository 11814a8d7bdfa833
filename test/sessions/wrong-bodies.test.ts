import t from 'tap';
import { testServer } from '../support/harness.ts';
import { path, relayPlace } from '../support/sessions.ts';

/** A validator's list of errors would look at each of these, for each kind of event: 2 GB for 2 MB, and the end of the process for 16. */
t.test('a body that is wrong a million times is refused for the first, at once and in little memory', async (t) => {
  const server = await testServer(t);
  const place = await relayPlace(server);
  const id = await place.session();
  const block = '{"type":"text"},';
  const bodies: [content: string, wrong: string][] = [
    [`${'1,'.repeat(1_000_000)}1`, 'content.0 must be an object'],
    [`${block.repeat(100_000)}1`, 'content.100000 must be an object'],
    [`${block.repeat(100_000)}{"type":5}`, 'content.100000.type must be a string'],
    [`{"type":"text","what":[${'1,'.repeat(2_000_000)}1]}`, 'tool_use_id: no such call'],
    [`{"type":"text","what":[${'[],'.repeat(2_000_000)}[]]}`, 'tool_use_id: no such call'],
  ];
  const { heapUsed } = process.memoryUsage();
  let most = heapUsed;
  for (const [content, wrong] of bodies) {
    const raw = `{"events":[{"type":"user.tool_result","tool_use_id":"sevt_x","content":[${content}]}]}`;
    const start = performance.now();
    const answer = await fetch(`${server.url}${path(id, '/events')}`, {
      method: 'POST',
      headers: { 'x-api-key': place.key, 'content-type': 'application/json' },
      body: raw,
    });
    most = Math.max(most, process.memoryUsage().heapUsed);
    t.equal(answer.status, 400);
    t.match(await answer.text(), wrong);
    t.ok(performance.now() - start < 10_000, `${wrong}: ${Math.round(performance.now() - start)} ms`);
  }
  t.ok(most - heapUsed < 1_000_000_000, `${Math.round((most - heapUsed) / 1e6)} MB`);
});
