import { sql } from 'kysely';
import t from 'tap';
import { introspect } from '../../src/control/introspect.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { newBench } from '../support/held.ts';
import { type RowName, rowBySeq } from '../support/places.ts';
import { settingsOf } from '../support/settings.ts';
import { checkRefusal } from '../support/wire.ts';

const LIVE: readonly RowName[] = ['queued, reservation live', 'starting, lease live', 'active, lease live'];
const SUCCEEDED = { status: 'succeeded', result: { pages: [1, null, 'é'] } };
const FAILED = { status: 'failed', error: 'the disk is full' };

const said = (status: string, state: string) => ({ status: 200, json: { type: 'work_outcome', status, state } });

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    // What is handed out stays so, however slow the machine.
    const server = await testServer(t, { engine, settings: { maxAttempts: 3, reclaimOlderThanMs: 600_000 } });
    const { database } = server;

    for (const row of LIVE) {
      t.test(`an item (${row}) that succeeded is stopped, with its result, and its follow-up comes`, async (t) => {
        const { enqueue, holder, take, items, history, list, result } = await newBench(server);
        await enqueue('session');
        await enqueue('session', { follow_up: true, metadata: { next: 'yes' } });
        await enqueue('neighbour');
        const held = await take(row);
        const neighbour = await take();
        const [before, beside] = [await rowOf(database, held.id), await rowOf(database, neighbour.id)];
        t.match(await holder(held).report(SUCCEEDED), said('succeeded', 'stopped'));
        const after = await rowOf(database, held.id);
        t.same(after, {
          ...before,
          ...{ state: 'stopped', outcome: 'succeeded', stop_reason: 'worker', lease_expires_at: null },
          ...{ stop_requested_at: after.stop_requested_at, stopped_at: after.stopped_at },
        });
        t.match(after, { stop_requested_at: String, stopped_at: String });
        t.same(await rowOf(database, neighbour.id), beside, 'its neighbour is as it was');
        t.match(await items(), [{ id: held.id }, { id: neighbour.id }, { session: 'session', state: 'queued' }]);
        t.equal((await items()).length, 3);

        t.match(await history(held.id), {
          work: { outcome: 'succeeded', has_result: true, stop_reason: 'worker', last_error: null },
          hand_outs: [{ work_id: held.id, outcome: 'succeeded' }],
        });
        t.match(await list('?outcome=succeeded'), [{ id: held.id }]);
        t.equal((await list('?outcome=succeeded')).length, 1);
        t.same(await list('?outcome=failed'), []);
        for (const key of [OPERATOR_KEY, held.sessionsToken]) {
          t.match(await result(held.id, key), { status: 200, json: { result: SUCCEEDED.result } });
        }
        checkRefusal(t, await result(held.id, neighbour.sessionsToken), 403, "a neighbour's token");
        checkRefusal(t, await (await newBench(server)).result(held.id), 404, 'in another environment');
        t.same((await result(neighbour.id)).json, { result: null });
        t.same(await introspect(database, held.sessionsToken), { isActive: false });
      });
    }

    t.test('the same outcome again is answered the same; another one is a conflict and changes nothing', async (t) => {
      const { enqueue, holder, take, all } = await newBench(server);
      await enqueue('session');
      const held = await take();
      const { report, release } = holder(held);
      t.match(await report(SUCCEEDED), said('succeeded', 'stopped'));
      const before = await all();
      t.match(await report(SUCCEEDED), said('succeeded', 'stopped'));
      for (const other of [{ status: 'succeeded' }, { status: 'succeeded', result: null }, FAILED]) {
        checkRefusal(t, await report(other), 409, JSON.stringify(other));
      }
      t.match(await release(), { status: 200, json: { state: 'stopped' } }, 'there is nothing to give back');
      t.same(await all(), before);
    });

    t.test('a failed attempt is tried again later under a new id, and is no hand-out against the cap', async (t) => {
      const { enqueue, holder, take, poll, retrieve, history, call, id } = await newBench(server);
      await settingsOf(server, id).change({ max_hand_outs: 1 });
      await enqueue('session');
      let seq: string | null | undefined;
      for (const attempt of [1, 2]) {
        const held = await take();
        seq = (await rowOf(database, held.id)).seq;
        t.match(await holder(held).report(FAILED), said('failed', 'queued'));
        const after = await rowBySeq(database, seq);
        t.match(after, {
          ...{ state: 'queued', attempt: attempt + 1, last_error: FAILED.error, outcome: null, stop_reason: null },
          ...{ hand_out_count: 0, handed_out_at: null, sessions_token_hash: null, lease_expires_at: null },
        });
        t.not(after.id, held.id);
        const [{ ms = 0 } = {}] = await database.rows(sql<{ ms: number }>`
          select extract(epoch from not_before - clock_timestamp())::float8 * 1000 as ms
          from ${database.names.workItems} where id = ${after.id}`);
        const most = 1_000 * 2 ** (attempt - 1);
        t.ok(ms > most / 2 - 400 && ms <= most, `attempt ${attempt}: again in ${ms} ms`);
        t.equal((await poll()).json, null, 'not before');
        t.match(await holder(held).report(FAILED), said('failed', 'queued'), 'its answer was lost');
        checkRefusal(t, await holder(held).report(SUCCEEDED), 409, 'something else');
        checkRefusal(t, await call('PATCH', `/${held.id}`, OPERATOR_KEY, { body: SUCCEEDED }), 409, 'an operator, too');
        checkRefusal(t, await retrieve(held.id), 404, 'the old id');
        checkRefusal(t, await holder(held).release(), 404, 'there is nothing to give back');
        t.same(await rowBySeq(database, seq), after);
        await database.rows(sql`update ${database.names.workItems} set not_before = null where id = ${after.id}`);
      }
      const last = await take();
      t.match(await holder(last).report(FAILED), said('failed', 'stopped'), 'the last attempt');
      t.match(await rowOf(database, last.id), { attempt: 3, stop_reason: 'failed', outcome: 'failed' });
      t.match(await holder(last).report({ ...FAILED, error: 'in other words' }), said('failed', 'stopped'));
      t.match(await history(last.id), {
        work: { outcome: 'failed', has_result: false, stop_reason: 'failed', last_error: FAILED.error, attempt: 3 },
        hand_outs: [{ outcome: 'failed' }, { outcome: 'failed' }, { work_id: last.id, outcome: 'failed' }],
      });
    });

    t.test('how often an item may fail is its own to say, else its environment’s, else the server’s', async (t) => {
      for (const [own, environment, expected] of [
        [1, 2, 1],
        [2, 1, 2],
        [undefined, 1, 1],
        [undefined, 2, 2],
        [undefined, null, 3],
      ] as const) {
        const { enqueue, holder, take, id } = await newBench(server);
        await settingsOf(server, id).change({ max_attempts: environment });
        await enqueue('session', own === undefined ? {} : { max_attempts: own });
        let state = 'queued';
        for (let n = 1; state === 'queued'; n++) {
          await database.rows(
            sql`update ${database.names.workItems} set not_before = null where environment_id = ${id}`,
          );
          state = (await holder(await take()).report({ status: 'failed' })).json.state;
          t.equal(state, n === expected ? 'stopped' : 'queued', `${own} ${environment}: failure ${n}`);
        }
      }
    });

    t.test('what has failed before and succeeds keeps what was said of the failure', async (t) => {
      const { enqueue, holder, take, id } = await newBench(server);
      await enqueue('session');
      t.match(await holder(await take()).report(FAILED), said('failed', 'queued'));
      await database.rows(sql`update ${database.names.workItems} set not_before = null where environment_id = ${id}`);
      const held = await take();
      t.match(await holder(held).report(SUCCEEDED), said('succeeded', 'stopped'));
      t.match(await rowOf(database, held.id), { outcome: 'succeeded', last_error: FAILED.error, attempt: 2 });
    });

    t.test(
      'a final failure is set aside at once, followed by its follow-up, and put back by an operator',
      async (t) => {
        const { enqueue, holder, take, items, requeue, list, cancel } = await newBench(server);
        await enqueue('session');
        await enqueue('session', { follow_up: true });
        const held = await take();
        t.match(await holder(held).report({ ...FAILED, final: true }), said('failed', 'stopped'));
        t.match(await items(), [{ id: held.id, state: 'stopped', reason: 'failed' }, { state: 'queued' }]);
        t.match(await list('?reason=failed'), [{ id: held.id, outcome: 'failed' }]);
        t.match(await list('?outcome=failed&outcome=succeeded&state=stopped'), [{ id: held.id }]);
        await cancel('session');
        t.match(await requeue(held.id), {
          status: 201,
          json: { state: 'queued', requeued_from: held.id, outcome: null, has_result: false, attempt: 1 },
        });
      },
    );

    for (const [body, status] of [
      [SUCCEEDED, 'succeeded'],
      [FAILED, 'failed'],
    ] as const) {
      t.test(`what winds down and has ${status} ends with that, and not again`, async (t) => {
        const { enqueue, holder, take, call, items } = await newBench(server);
        await enqueue('session', { max_attempts: 5 });
        await enqueue('session', { follow_up: true });
        const held = await take();
        await server.call(
          'POST',
          `/v1/environments/${(await rowOf(database, held.id)).environment_id}/work/${held.id}/stop`,
          {
            as: OPERATOR_KEY,
          },
        );
        const before = await rowOf(database, held.id);
        t.match(before, { state: 'stopping', stop_reason: 'operator' });
        t.match(await holder(held).report(body), said(status, 'stopped'));
        const after = await rowOf(database, held.id);
        const { last_error: error = null } = { last_error: status === 'failed' ? FAILED.error : null };
        t.same(after, {
          ...before,
          ...{
            state: 'stopped',
            outcome: status,
            last_error: error,
            lease_expires_at: null,
            stopped_at: after.stopped_at,
          },
        });
        t.match(await holder(held).report(body), said(status, 'stopped'), 'and again');
        t.match(await items(), [{ id: held.id }, { state: 'queued' }], 'one follows it, from before');
        t.equal((await items()).length, 2);
        checkRefusal(
          t,
          await call('PATCH', `/${held.id}`, held.sessionsToken, { body: { status: 'succeeded' } }),
          409,
          'else',
        );
      });
    }

    for (const row of ['stopped, ever active', 'stopped, never acked'] as const) {
      t.test(`what comes after the end (${row}) is a conflict`, async (t) => {
        const { enqueue, holder, take } = await newBench(server);
        await enqueue('session');
        const held = await take(row);
        const before = await rowOf(database, held.id);
        for (const body of [SUCCEEDED, FAILED, { status: 'succeeded' }]) {
          checkRefusal(t, await holder(held).report(body), 409, body.status);
        }
        t.same(await rowOf(database, held.id), before);
      });
    }

    for (const row of LIVE) {
      t.test(`under a lease that has lapsed (${row}) nothing is said, nor once another has the item`, async (t) => {
        const { enqueue, holder, take } = await newBench(server);
        await enqueue('session');
        const held = await take(row);
        await lapse(database, held.id);
        const before = await rowOf(database, held.id);
        for (const body of [SUCCEEDED, FAILED]) {
          const refused = await holder(held).report(body);
          checkRefusal(t, refused, 412, body.status);
          t.match(refused.json.error.details, { error_code: 'lease_lapsed', current_state: { state: before.state } });
        }
        t.same(await rowOf(database, held.id), before);
        const next = await take();
        const now = await rowOf(database, next.id);
        for (const body of [SUCCEEDED, FAILED]) checkRefusal(t, await holder(held).report(body), 404, body.status);
        t.same(await rowOf(database, next.id), now);
        t.match(await holder(next).report(SUCCEEDED), said('succeeded', 'stopped'));
      });
    }

    t.test('an operator may say it, too, and is the reason then; the audit tells', async (t) => {
      const { enqueue, call, take, place } = await newBench(server);
      await enqueue('session');
      const held = await take();
      const headers = { 'idempotency-key': held.id };
      for (let n = 0; n < 2; n++) {
        t.match(
          await call('PATCH', `/${held.id}`, OPERATOR_KEY, { body: SUCCEEDED, headers }),
          said('succeeded', 'stopped'),
        );
      }
      t.match(await rowOf(database, held.id), { stop_reason: 'operator', outcome: 'succeeded' });
      const audit = await server.call('GET', `/control/v1/audit?environment=${place.environment.id}`, {
        as: OPERATOR_KEY,
      });
      t.match(audit.json.data, [{ action: 'reportWork', target: held.id, status: 200 }]);
    });

    t.test('what cannot be said is refused by name, and changes nothing', async (t) => {
      const { enqueue, call, take } = await newBench(server);
      await enqueue('session');
      const held = await take();
      const before = await rowOf(database, held.id);
      for (const [body, message] of [
        [{}, /status/],
        [{ status: 'done' }, /status/],
        [{ status: 'succeeded', error: 'x' }, /^error must not/],
        [{ status: 'succeeded', final: true }, /^final must not/],
        [{ status: 'failed', result: 1 }, /^result must not/],
        [{ status: 'failed', error: '' }, /error/],
        [{ status: 'failed', error: 'é'.repeat(2_001) }, /error/],
        [{ status: 'failed', error: 'a\0b' }, /error/],
        [{ status: 'succeeded', result: 'é'.repeat(131_072) }, /^result must be at most 262144 bytes/],
        [{ status: 'succeeded', result: { a: 'a\0b' } }, /NUL/],
        [{ status: 'succeeded', outcome: 1 }, /outcome/],
      ] as const) {
        const refused = await call('PATCH', `/${held.id}`, held.sessionsToken, { body });
        checkRefusal(t, refused, 400, JSON.stringify(body).slice(0, 60));
        t.match(refused.json.error.message, message);
      }
      t.same(await rowOf(database, held.id), before);
      const largest = { status: 'succeeded', result: 'é'.repeat(131_071) };
      t.match(await call('PATCH', `/${held.id}`, held.sessionsToken, { body: largest }), { status: 200 });
      const raw = await call('GET', `/${held.id}/result`, held.sessionsToken);
      t.ok(raw.json.result === largest.result);
    });

    t.test('a result goes with its item', async (t) => {
      const { enqueue, holder, take, id } = await newBench(server);
      await enqueue('session');
      const held = await take();
      await holder(held).report(SUCCEEDED);
      await settingsOf(server, id).change({ retention_days: 1 });
      await database.rows(sql`update ${database.names.workItems}
        set stopped_at = clock_timestamp() - interval '2 days' where environment_id = ${id}`);
      const { seq } = await rowOf(database, held.id);
      const kept = () =>
        database.rows(sql`select from ${database.names.workResults} where item_seq = ${String(seq)}::bigint`);
      t.equal((await kept()).length, 1);
      await server.queue.sweep();
      t.equal((await kept()).length, 0);
    });
  });
}
