import pg from 'pg';
import t, { type Test } from 'tap';
import { caller, OPERATOR_KEY, until } from './support/harness.ts';
import { freshDatabase, startMain } from './support/process.ts';
import { settingsOf } from './support/settings.ts';
import { BLOCK_MS, IN_TIME_MS, quickest } from './support/waiting.ts';

const as = OPERATOR_KEY;

/** Two server processes on one database, an environment and its key; what is changed is changed on the one, seen on the other. */
async function twoServers(t: Test) {
  const databaseUrl = await freshDatabase(t);
  const variables = { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: OPERATOR_KEY, SWEEP_INTERVAL_MS: '50' };
  const [one, other] = await Promise.all([startMain(t, variables), startMain(t, variables)]);
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  t.teardown(() => client.end());
  const [here, there] = [caller(one.url, as), caller(other.url, as)];
  const environment = async (name: string) => {
    const { id } = (await here('POST', '/v1/environments', { body: { name } })).json;
    const work = (path: string) => `/v1/environments/${id}/work${path}`;
    return {
      id,
      work,
      settings: settingsOf({ call: here }, id),
      enqueue: async (session: string): Promise<string> =>
        (
          await here('POST', `/control/v1/environments/${id}/work`, {
            body: { data: { type: 'session', id: session } },
          })
        ).json.id,
      /** The next item, taken here or there; null when there is none. */
      poll: async (call: typeof here, query = '') => (await call('GET', work(`/poll${query}`))).json,
    };
  };
  /** From the database's now to the lapse. */
  const lease = async (id: string): Promise<number> => {
    const { rows } = await client.query(
      'select extract(epoch from lease_expires_at - clock_timestamp())::float8 as s from leasehold.work_items where id = $1',
      [id],
    );
    return rows[0].s;
  };
  const lapse = (id: string, seconds: number) =>
    client.query(
      'update leasehold.work_items set lease_expires_at = clock_timestamp() - $2::float8 * interval $$1 second$$ where id = $1',
      [id, seconds],
    );
  const rowOf = async (id: string) =>
    (await client.query('select state, stop_reason as reason from leasehold.work_items where id = $1', [id])).rows[0];
  return { client, here, there, environment, lease, lapse, rowOf };
}

/** What is left of a lease that was given at an instant after `since`, by the local clock: the clocks differ by less than a second. */
function isLeft(t: Test, actual: number, given: number, since: number, what: string): void {
  const least = given - (performance.now() - since) / 1_000 - 1;
  t.ok(actual > least && actual <= given, `${what}: ${given} s, of which ${actual} are left`);
}

t.test('what is set through one server acts at once on both', async (t) => {
  const { client, here, there, environment, lease, lapse, rowOf } = await twoServers(t);
  const [ours, neighbour] = [await environment('ours'), await environment('neighbour')];
  const defaults = { lease_ttl_seconds: 120, lease_ttl_max_seconds: 300, startup_lease_seconds: 120 };
  const own = { lease_ttl_seconds: 20, lease_ttl_max_seconds: 40, startup_lease_seconds: 10 };
  // Both servers have served both environments before.
  for (const { poll } of [ours, neighbour]) for (const call of [here, there]) t.equal(await poll(call), null);
  const changed = await ours.settings.change({
    ...own,
    reclaim_older_than_ms: 60_000,
    max_hand_outs: 1,
    retention_days: 2,
  });
  t.equal(changed.status, 200);
  t.strictSame((await settingsOf({ call: there }, ours.id).read()).json, changed.json);

  for (const [place, fields, reservation] of [
    [ours, own, 60],
    [neighbour, defaults, 5],
  ] as const) {
    for (const call of [there, here]) {
      await place.enqueue('session');
      const polledAt = performance.now();
      const { id } = await place.poll(call);
      isLeft(t, await lease(id), reservation, polledAt, 'reservation');
      const ackedAt = performance.now();
      await call('POST', place.work(`/${id}/ack`));
      isLeft(t, await lease(id), fields.startup_lease_seconds, ackedAt, 'startup lease');
      const first = await call('POST', place.work(`/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`));
      t.equal(first.json.ttl_seconds, fields.lease_ttl_seconds);
      const query = `expected_last_heartbeat=${first.json.last_heartbeat}&desired_ttl_seconds=1000`;
      const second = await call('POST', place.work(`/${id}/heartbeat?${query}`));
      t.equal(second.json.ttl_seconds, fields.lease_ttl_max_seconds);
      await call('POST', place.work(`/${id}/stop`), { body: { force: true } });
    }
  }

  const spent = await ours.enqueue('spent by a poll');
  t.equal((await ours.poll(there)).id, spent);
  await lapse(spent, 1);
  t.equal(await ours.poll(there), null);
  t.strictSame(await rowOf(spent), { state: 'stopped', reason: 'exhausted' });
  const swept = await ours.enqueue('spent by the sweep');
  t.equal((await ours.poll(there)).id, swept);
  await lapse(swept, 3);
  await until('a sweep to set it aside', async () => (await rowOf(swept)).reason === 'exhausted');
  const free = await neighbour.enqueue('of the neighbour');
  t.equal((await neighbour.poll(there)).id, free);
  await lapse(free, 1);
  t.type((await neighbour.poll(there)).id, 'string', 'its work is handed out again');

  await client.query(
    `update leasehold.work_items set stopped_at = clock_timestamp() - interval '3 days' where state = 'stopped'`,
  );
  const left = async (id: string) =>
    (await client.query(`select from leasehold.work_items where environment_id = $1 and state = 'stopped'`, [id]))
      .rowCount;
  t.ok((await left(neighbour.id)) !== 0);
  await until('it to be pruned', async () => (await left(ours.id)) === 0);
  t.equal(await left(neighbour.id), 2, 'the neighbour remembers longer');
});

t.test('what is paused on one server is paused on both; resuming on one wakes the polls of the other', async (t) => {
  const { here, there, environment } = await twoServers(t);
  const [ours, neighbour] = [await environment('ours'), await environment('neighbour')];
  const block = `?block_ms=${BLOCK_MS}`;
  const first = await ours.enqueue('first');
  const paused = await ours.settings.pause();
  for (const call of [here, there]) t.equal(await ours.poll(call), null, 'at once');
  const free = await neighbour.enqueue('session');
  t.equal((await neighbour.poll(there)).id, free, 'the neighbour goes on');
  t.equal((await settingsOf({ call: there }, ours.id).pause()).json.paused_at, paused.json.paused_at);

  const began = performance.now();
  t.equal(await ours.poll(there, block), null);
  t.ok(performance.now() - began >= BLOCK_MS - 5, 'it waited its time');

  const workers = async () => (await there('GET', `/control/v1/environments/${ours.id}/workers`)).text;
  let next = first;
  const woken = await quickest(IN_TIME_MS / 2, async (n) => {
    await ours.settings.pause();
    const name = `patient-${n}`;
    const waiting = there('GET', ours.work(`/poll${block}`), { headers: { 'anthropic-worker-id': name } });
    await until('the poll to wait', async () => (await workers()).includes(name));
    const resumedAt = performance.now();
    await ours.settings.resume();
    const { json } = await waiting;
    const ms = performance.now() - resumedAt;
    if (json === null) return Number.POSITIVE_INFINITY; // its time was up
    t.equal(json.id, next);
    await here('POST', ours.work(`/${json.id}/stop`), { body: { force: true } });
    next = await ours.enqueue(`next ${n}`);
    return ms;
  });
  t.ok(woken < IN_TIME_MS / 2, `woken after ${woken} ms`);
});

t.test('a hundred repeats of a change, sent to both servers at once, act once', async (t) => {
  const { client, here, there, environment } = await twoServers(t);
  const { id } = await environment('repeated');
  const send = (call: typeof here) =>
    call('POST', `/control/v1/environments/${id}/work/batch`, {
      headers: { 'idempotency-key': 'once' },
      body: { items: [{ data: { type: 'session', id: 'one' } }, { data: { type: 'session', id: 'two' } }] },
    });
  const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => send(n % 2 === 0 ? here : there)));
  const [acted, waiting] = [
    answers.filter(({ status }) => status === 200),
    answers.filter(({ status }) => status !== 200),
  ];
  t.not(acted.length, 0);
  for (const { json } of acted) t.strictSame(json, acted[0]?.json, 'one answer, on both');
  for (const { status, headers } of waiting) t.strictSame([status, headers.get('retry-after')], [409, '1']);
  t.strictSame((await send(there)).json, acted[0]?.json, 'and later');
  const { rows } = await client.query(
    `select (select count(*) from leasehold.work_items)::int as items,
      (select count(*) from leasehold.audit_log where action = 'enqueueWorkBatch')::int as entries`,
  );
  t.strictSame(rows, [{ items: 2, entries: 1 }]);
});

t.test('what its holder says on one server acts on both: given back, failed and succeeded', async (t) => {
  const { client, here, there, environment, rowOf } = await twoServers(t);
  const ours = await environment('ours');
  const path = (id: string) => `/control/v1/environments/${ours.id}/work/${id}`;
  const holding = (work: { id: string; secret: string }) => ({
    id: work.id,
    as: JSON.parse(Buffer.from(work.secret, 'base64url').toString()).sessions_token as string,
  });
  await ours.settings.change({ reclaim_older_than_ms: 600_000 }); // what is handed out stays so
  await ours.enqueue('session');
  const first = holding(await ours.poll(here));
  const workers = async () => (await there('GET', `/control/v1/environments/${ours.id}/workers`)).text;
  let [second, releases] = [first, 0];
  const woken = await quickest(IN_TIME_MS / 2, async (n) => {
    const headers = { 'anthropic-worker-id': `patient-${n}` };
    const waiting = there('GET', ours.work(`/poll?block_ms=${BLOCK_MS}`), { headers });
    await until('the poll to wait', async () => (await workers()).includes(`patient-${n}`));
    const releasedAt = performance.now();
    t.match(await here('POST', `${path(second.id)}/release`, second), { status: 200, json: { state: 'queued' } });
    releases++;
    const { json } = await waiting;
    const ms = performance.now() - releasedAt;
    second = holding(json ?? (await ours.poll(there)));
    return json === null ? Number.POSITIVE_INFINITY : ms; // its time was up
  });
  t.ok(woken < IN_TIME_MS / 2, `woken after ${woken} ms`);
  t.match(
    await there('POST', `${path(first.id)}/release`, first),
    { status: 200, json: { state: 'queued' } },
    'again, there',
  );

  const failed = { ...second, body: { status: 'failed', error: 'no luck' } };
  const answers = await Promise.all([here, there, here, there].map((call) => call('PATCH', path(second.id), failed)));
  for (const answer of answers) t.match(answer, { status: 200, json: { status: 'failed', state: 'queued' } });
  let work = null;
  await until('it to be tried again', async () => {
    work = await ours.poll(there, `?block_ms=${BLOCK_MS}`);
    return work !== null;
  });
  const third = holding(work as never);
  const { rows } = await client.query('select attempt, last_error as error from leasehold.work_items where id = $1', [
    third.id,
  ]);
  t.same(rows, [{ attempt: 2, error: 'no luck' }], 'it failed once');

  const succeeded = { ...third, body: { status: 'succeeded', result: ['done'] } };
  const told = await Promise.all([here, there, here, there].map((call) => call('PATCH', path(third.id), succeeded)));
  for (const answer of told) t.match(answer, { status: 200, json: { status: 'succeeded', state: 'stopped' } });
  t.equal((await there('PATCH', path(third.id), { ...third, body: { status: 'failed' } })).status, 409);
  t.same(await rowOf(third.id), { state: 'stopped', reason: 'worker' });
  t.same((await there('GET', `${path(third.id)}/result`)).json, { result: ['done'] });
  const { hand_outs: handOuts } = (await there('GET', `${path(first.id)}/history`)).json;
  t.same(
    handOuts.map(({ outcome }: { outcome: string }) => outcome),
    [...Array(releases).fill('released'), 'failed', 'succeeded'],
  );
});
