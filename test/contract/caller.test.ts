import t from 'tap';
import { issueKey } from '../../src/index.ts';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { holding } from '../support/interleave.ts';

const PATH = '/control/v1/caller';

for (const engine of ENGINES) {
  t.test(`${engine}: a key tells whose it is; a sessions token and what is unknown are refused`, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database, environment } = server;
    const own = await issueKey(database, { environmentId: environment.id, name: 'patient', minQueuedAgeMs: 1_500 });
    t.same((await call('GET', PATH, { as: own.key })).json, {
      type: 'caller',
      key_id: own.id,
      name: 'patient',
      environment_id: environment.id,
      role: null,
      min_queued_age_ms: 1_500,
    });
    const reader = await issueKey(database, { environmentId: null, name: 'reader', role: 'read_only' });
    const seen = await call('GET', PATH, { as: reader.key });
    t.match(seen.json, { key_id: reader.id, environment_id: null, role: 'read_only', min_queued_age_ms: 0 });
    t.match((await call('GET', PATH, { as: OPERATOR_KEY })).json, { key_id: 'operator', role: 'operator' });
    const { sessionsToken } = await holding(server, 'session', 'reserved');
    t.equal((await call('GET', PATH, { as: sessionsToken })).status, 403);
    t.equal((await call('GET', PATH, { as: 'unknown' })).status, 401);
  });
}
