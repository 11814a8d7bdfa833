import t from 'tap';
import { ENGINES, testServer } from './support/harness.ts';

for (const engine of ENGINES) {
  t.test(`${engine}: an item goes from enqueue to stop`, async (t) => {
    const { call, work, enqueue } = await testServer(t, { engine });
    const id = await enqueue('session-1');
    const polled = await call('GET', work('/poll'));
    t.equal(polled.json.id, id);
    t.equal((await call('POST', work(`/${id}/ack`))).json.state, 'starting');
    t.equal((await call('POST', work(`/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`))).json.state, 'active');
    t.equal((await call('POST', work(`/${id}/stop`), { body: { force: true } })).status, 204);
    t.equal((await call('GET', work('/poll'))).text, 'null');
  });
}
