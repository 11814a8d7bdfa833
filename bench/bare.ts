import fastify from 'fastify';

/** The limit: a Fastify route without anything of ours, that answers a constant work object. A process of its own. */
const work = {
  id: 'work_V1StGXR8Z5jdHi6BmyTxxxxx',
  type: 'work',
  environment_id: 'env_V1StGXR8Z5jdHi6BmyTxxxxx',
  state: 'queued',
  data: { type: 'session', id: 'session-1' },
  metadata: {},
  secret: null,
  created_at: '2026-01-31T12:00:00.123456Z',
  acknowledged_at: null,
  started_at: null,
  latest_heartbeat_at: null,
  stop_requested_at: null,
  stopped_at: null,
};
const app = fastify();
app.get('/work', async () => work);
console.log(`listening on ${await app.listen({ host: '127.0.0.1', port: 0 })}`);
process.once('SIGTERM', () => process.exit());
