import { BetaHeartbeatPreconditionFailedError } from '@anthropic-ai/sdk/resources/beta/environments/work';
import t from 'tap';
import { ENGINES, lapse, testServer, until } from './support/harness.ts';
import { lossyProxy, officialClient } from './support/official-client.ts';

const ITEMS = 200;

const refusal = (call: Promise<unknown>): Promise<unknown> => call.catch((error: unknown) => error);

for (const engine of ENGINES) {
  t.test(`${engine}: three of the official pollers drain the queue, each item once`, async (t) => {
    const server = await testServer(t, { engine, background: true });
    const { environment, environmentKey, enqueue } = server;
    const { client } = officialClient(t, server);
    const sessions = Array.from({ length: ITEMS }, (_, index) => `session-${index}`);
    await Promise.all(sessions.map((session) => enqueue(session)));

    const drain = async (blockMs: number | null | undefined) => {
      const options = { environmentId: environment.id, environmentKey, drain: true };
      const taken: { id: string; session: string }[] = [];
      const poller = client.beta.environments.work.poller({
        ...options,
        ...(blockMs === undefined ? {} : { blockMs }),
      });
      for await (const work of poller) taken.push({ id: work.id, session: work.data.id });
      return taken;
    };
    const shares = await Promise.all([drain(undefined), drain(null), drain(50)]);
    const taken = shares.flat();
    t.same(taken.map(({ session }) => session).sort(), sessions.sort());
    t.equal(new Set(taken.map(({ id }) => id)).size, ITEMS);
    for (const share of shares) t.not(share.length, 0, 'nobody was sent away while there was work');
    const states = new Set<string>();
    for await (const work of client.beta.environments.work.list(environment.id, { limit: 100 })) states.add(work.state);
    t.same([...states], ['stopped'], 'the poller stops what it has handled');
  });

  t.test(`${engine}: the official client lists page by page, retrieves, updates, counts and stops`, async (t) => {
    const server = await testServer(t, { engine });
    const { environment, enqueue } = server;
    const { client, worker, sent } = officialClient(t, server);
    const { work } = client.beta.environments;
    const at = { environment_id: environment.id };
    const ids: string[] = [];
    for (let index = 0; index < 45; index++) ids.push(await enqueue(`session-${index}`, { n: `${index}` }));

    const listed: string[] = [];
    for await (const item of work.list(environment.id, { limit: 20 })) listed.push(item.id);
    t.same(listed, ids.toReversed(), 'newest first, each once');
    t.equal(sent.filter((request) => request === `GET ${server.work()}`).length, 3, '20, 20 and 5');

    const [first = '', second = ''] = ids;
    const stored = { id: first, state: 'queued', secret: null, data: { type: 'session', id: 'session-0' } };
    t.match(await work.retrieve(first, at), { ...stored, metadata: { n: '0' } });
    const updated = await work.update(first, { ...at, metadata: { n: null, color: 'blue' } });
    t.strictSame(updated.metadata, { color: 'blue' });
    t.strictSame((await work.retrieve(first, at)).metadata, { color: 'blue' });

    const polled = await worker.beta.environments.work.poll(environment.id, {
      reclaim_older_than_ms: 600_000,
      'Anthropic-Worker-ID': 'worker-1',
    });
    t.match(polled, { ...stored, secret: String });
    t.match(await work.stats(environment.id), {
      type: 'work_queue_stats',
      depth: 44,
      pending: 1,
      workers_polling: 1,
      oldest_queued_at: polled?.created_at,
    });

    await work.stop(second, { ...at, force: true });
    t.match(await work.retrieve(second, at), { state: 'stopped', stopped_at: String });
    const refused = sent.length;
    t.match(await refusal(work.stop(second, at)), { status: 409, type: 'conflict_error' });
    t.equal(sent.length - refused, 1, 'a conflict is not sent again');
  });

  t.test(`${engine}: the official client creates and retrieves an environment`, async (t) => {
    const server = await testServer(t, { engine });
    const { environments } = officialClient(t, server).client.beta;
    const wanted = { name: 'production', description: 'a fleet', metadata: { team: 'infra' } };
    const created = await environments.create({ ...wanted, config: { type: 'self_hosted' } });
    t.match(created, {
      ...wanted,
      id: /^env_/,
      type: 'environment',
      config: { type: 'self_hosted' },
      scope: 'organization',
      archived_at: null,
    });
    t.strictSame(await environments.retrieve(created.id), created);
  });

  t.test(
    `${engine}: a stale heartbeat comes out as the client's typed error and leaves the lease as it was`,
    async (t) => {
      const server = await testServer(t, { engine });
      const { environment, enqueue } = server;
      const { work } = officialClient(t, server).worker.beta.environments;
      const at = { environment_id: environment.id };
      const id = await enqueue('session-1');
      await work.poll(environment.id);
      t.match(await work.ack(id, at), { id, state: 'starting', acknowledged_at: String });
      const claimed = await work.heartbeat(id, {
        ...at,
        expected_last_heartbeat: 'NO_HEARTBEAT',
        desired_ttl_seconds: 90,
      });
      const extended = await work.heartbeat(id, { ...at, expected_last_heartbeat: claimed.last_heartbeat });
      for (const beat of [claimed, extended])
        t.match(beat, { type: 'work_heartbeat', state: 'active', lease_extended: true });
      t.match([claimed.ttl_seconds, extended.ttl_seconds], [90, 120]);
      t.ok(extended.last_heartbeat > claimed.last_heartbeat, 'the token moves on');

      for (const stale of ['NO_HEARTBEAT', claimed.last_heartbeat]) {
        const error = await work
          .heartbeat(id, { ...at, expected_last_heartbeat: stale })
          .catch((error: unknown) => error);
        if (!(error instanceof BetaHeartbeatPreconditionFailedError)) return t.fail('not the typed error', { error });
        t.strictSame(error.details, {
          error_code: 'heartbeat_precondition_failed',
          current_state: {
            state: 'active',
            last_heartbeat: extended.last_heartbeat,
            lease_extended: false,
            ttl_seconds: 120,
          },
        });
        t.match(error, { status: 412, type: 'invalid_request_error', requestID: /^req_/ });
      }
      t.match(await work.heartbeat(id, { ...at, expected_last_heartbeat: extended.last_heartbeat }), {
        lease_extended: true,
      });
    },
  );

  t.test(
    `${engine}: a worker whose heartbeat answers get lost keeps its lease, by the client's own retry`,
    async (t) => {
      const server = await testServer(t, { engine });
      const { environment, enqueue } = server;
      const proxy = await lossyProxy(t, server.url);
      const { work } = officialClient(t, server, proxy.url).worker.beta.environments;
      const at = { environment_id: environment.id };
      const id = await enqueue('session-1');
      await work.poll(environment.id);
      await work.ack(id, at);
      const tokens = ['NO_HEARTBEAT'];
      for (const lost of [true, false, true, false]) {
        if (lost) proxy.drop(/heartbeat/);
        const beat = await work.heartbeat(id, { ...at, expected_last_heartbeat: tokens.at(-1) ?? null });
        t.match(beat, { lease_extended: true, state: 'active' });
        t.match(await work.retrieve(id, at), { state: 'active' });
        tokens.push(beat.last_heartbeat);
      }
      t.equal(new Set(tokens).size, 5, 'each beat has one token, also the one that was sent twice');
      const beats = proxy.seen.filter(({ path }) => path.includes('/heartbeat'));
      const answer = (retryCount: string, dropped: boolean) => ({ retryCount, dropped, status: 200 });
      const lostAndRetried = [answer('0', true), answer('1', false), answer('0', false)];
      t.match(beats, [...lostAndRetried, ...lostAndRetried]);
      t.equal(beats.length, 6);
    },
  );

  t.test(`${engine}: an item whose poll answer got lost is offered again`, async (t) => {
    const server = await testServer(t, { engine });
    const { environment, enqueue, database } = server;
    const proxy = await lossyProxy(t, server.url);
    const { work } = officialClient(t, server, proxy.url).worker.beta.environments;
    const lost = await enqueue('session-1');
    proxy.drop(/poll/);
    const reserved = { reclaim_older_than_ms: 600_000 };
    t.equal(await work.poll(environment.id, reserved), null, 'the client polls again; the item is still reserved');
    t.match(proxy.seen, [
      { retryCount: '0', dropped: true },
      { retryCount: '1', dropped: false },
    ]);
    await lapse(database, lost);
    const again = await work.poll(environment.id);
    t.match(again, { state: 'queued', data: { id: 'session-1' }, secret: String });
    const id = again?.id ?? lost;
    t.not(id, lost, 'under a new id: somebody may hold the old one');
    const at = { environment_id: environment.id };
    t.match(await work.ack(id, at), { state: 'starting' });
    t.match(await refusal(work.ack(lost, at)), { status: 404, type: 'not_found_error' });
  });

  t.test(`${engine}: an enqueue ends the wait of a blocked official poller`, async (t) => {
    const server = await testServer(t, { engine });
    const { environment, environmentKey, enqueue, queue } = server;
    const { client, sent } = officialClient(t, server);
    const poller = client.beta.environments.work.poller({ environmentId: environment.id, environmentKey });
    const polls = () => sent.filter((request) => request === `GET ${server.work('/poll')}`).length;
    const items = poller[Symbol.asyncIterator]();
    const next = items.next();
    await until('the poller waits', async () => (await queue.stats(environment.id)).workersPolling === 1);
    const id = await enqueue('session-1');
    t.equal((await next).value?.id, id);
    t.equal(polls(), 1, 'the poll that was waiting brought it');
    await items.return?.(undefined);
    t.match(await client.beta.environments.work.retrieve(id, { environment_id: environment.id }), { state: 'stopped' });
  });

  t.test(`${engine}: ack and heartbeat are taken as POST with a JSON content type and no body`, async (t) => {
    const { call, work, enqueue } = await testServer(t, { engine });
    const headers = { 'content-type': 'application/json' };
    const id = await enqueue('session-1');
    await call('GET', work('/poll'));
    t.match(await call('POST', work(`/${id}/ack`), { headers }), { status: 200, json: { state: 'starting' } });
    const beat = await call('POST', work(`/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`), { headers });
    t.match(beat, { status: 200, json: { state: 'active', lease_extended: true } });
    t.match(await call('POST', work(`/${id}/stop`), { headers }), { status: 204, text: '' });
  });
}
