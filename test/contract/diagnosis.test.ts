import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { mintEnvironmentKey } from '../../src/control/key-rows.ts';
import { issueKey } from '../../src/control/keys.ts';
import { recordRefusals } from '../../src/queue/refusals.ts';
import { requeueSetAside } from '../../src/queue/requeue.ts';
import { STATEMENTS, watch } from '../support/gates.ts';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { newPlace, type Place, STALE_TOKEN, setLease } from '../support/places.ts';
import { checkRefusal } from '../support/wire.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { call, database, queue } = server;
    const { credentials, environments, refusals, workItems, workerSightings } = database.names;
    const ask = ({ environment }: Place) =>
      call('GET', `/control/v1/environments/${environment.id}/diagnosis`, { as: OPERATOR_KEY });
    const poll = async (place: Place) =>
      (await place.poll('', { headers: { 'anthropic-worker-id': 'worker' } })).json?.id;
    const move = (place: Place, columns: string, seconds: number) =>
      database.rows(
        sql`update ${workItems} set ${sql.raw(
          columns
            .split(' ')
            .map((column) => `${column} = ${column} - interval '${seconds} seconds'`)
            .join(', '),
        )} where environment_id = ${place.environment.id}`,
      );

    /** A neighbour that is well: work waits, is held and was done. */
    const healthy = await newPlace(server);
    for (const end of ['done', 'held']) {
      await healthy.enqueue(end);
      const id = await poll(healthy);
      await healthy.ack(id);
      await healthy.beat(id, 'NO_HEARTBEAT');
      if (end === 'done') await healthy.forceStop(id);
    }

    /** These findings and no others, and none for the neighbour, who has just polled. */
    const finds = async (t: Test, place: Place, evidence: Record<string, object>, what = '') => {
      const { status, json } = await ask(place);
      t.equal(status, 200);
      t.strictSame(
        json.data.map((finding: { code: string }) => finding.code),
        Object.keys(evidence),
        `${what}: codes`,
      );
      for (const finding of json.data) {
        t.strictSame(Object.keys(finding).sort(), ['code', 'evidence', 'message']);
        t.match(finding.evidence, evidence[finding.code], `${what}: ${finding.code}`);
        t.strictSame(Object.keys(finding.evidence).sort(), Object.keys(evidence[finding.code] ?? {}).sort());
        t.match(finding.message, /^[A-Z0-9].{40,}[.]$/);
        t.notMatch(finding.message, /undefined|null/);
      }
      await poll(healthy);
      await healthy.enqueue('waiting');
      t.strictSame((await ask(healthy)).json.data, [], `${what}: the neighbour is well`);
    };

    t.test('where nothing is wrong nothing is found, and the figures are those of stats', async (t) => {
      const place = await newPlace(server);
      await finds(t, place, {}, 'nothing there');
      await place.enqueue();
      await place.enqueue();
      await poll(place);
      const { type, ...figures } = (await place.get('/stats')).json;
      t.match(figures, { depth: 1, pending: 1, workers_polling: 1 });
      t.strictSame((await ask(place)).json, { data: [], ...figures });
      checkRefusal(
        t,
        await call('GET', '/control/v1/environments/env_x/diagnosis', { as: OPERATOR_KEY }),
        404,
        'unknown',
      );
    });

    t.test('no_worker_polls: work waits and nobody has polled for 30 s', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      await finds(t, place, { no_worker_polls: { free: 1, last_poll_at: null } }, 'never');
      await place.enqueue();
      t.ok((await place.poll()).json.id);
      await finds(t, place, {}, 'a worker without a name has just taken one');
      await poll(place);
      await place.enqueue();
      await queue.stats(place.environment.id);
      const seen = (seconds: number) =>
        database.rows(sql`update ${workerSightings} set seen_at = clock_timestamp() - ${seconds} * interval '1 second'
          where environment_id = ${place.environment.id}`);
      await move(place, 'handed_out_at', 60);
      await seen(28);
      await finds(t, place, {}, '28 s');
      await seen(31);
      await finds(t, place, { no_worker_polls: { free: 1, last_poll_at: /Z$/ } }, '31 s');
      t.ok(await poll(place));
      await finds(t, place, {}, 'polled');
    });

    t.test('credentials_refused: polls with a wrong key within 10 minutes', async (t) => {
      const place = await newPlace(server);
      for (const as of [mintEnvironmentKey(), server.environmentKey, null]) {
        checkRefusal(t, await place.poll('', { as }), 401, 'poll');
        t.equal((await place.retrieve('work_x', { as })).status, 401, 'others are not counted');
      }
      await finds(t, place, { credentials_refused: { refused: 3, last_refused_at: /Z$/ } });
      await place.poll('', { as: null });
      await finds(t, place, { credentials_refused: { refused: 4, last_refused_at: /Z$/ } }, 'one more');
      await database.rows(sql`update ${refusals} set last_at = last_at - interval '10 minutes'`);
      await finds(t, place, {}, 'long ago');
    });

    t.test(
      'anything may stand where the environment does: it is refused, and keeps nobody from being counted',
      async (t) => {
        const place = await newPlace(server);
        for (const id of ['env_unknown', '%00', 'x'.repeat(200), 'a%20b']) {
          checkRefusal(t, await call('GET', `/v1/environments/${id}/work/poll`, { as: mintEnvironmentKey() }), 401, id);
        }
        await place.poll('', { as: null });
        await finds(t, place, { credentials_refused: { refused: 1, last_refused_at: /Z$/ } });
      },
    );

    t.test('heartbeats_refused: 50 within 10 minutes', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const id = await poll(place);
      await place.ack(id);
      await place.beat(id, 'NO_HEARTBEAT');
      for (let n = 0; n < 49; n++) t.equal((await place.beat(id, STALE_TOKEN)).status, 412);
      await finds(t, place, {}, '49');
      await place.beat(id, STALE_TOKEN);
      await finds(t, place, { heartbeats_refused: { refused: 50, last_refused_at: /Z$/ } }, '50');
      await database.rows(sql`update ${refusals} set last_at = last_at - interval '10 minutes'`);
      await finds(t, place, {}, 'long ago');
    });

    t.test('reservations_lapse: three within the hour, and few acked', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const lapseOne = async () => lapse(database, await poll(place));
      await lapseOne();
      await lapseOne();
      await setLease(place, await poll(place), null);
      await poll(place);
      await finds(t, place, {}, 'two, and one that was given back');
      await lapse(database, await presentId(place));
      await finds(
        t,
        place,
        { reservations_lapse: { lapsed: 3, acked: 0, acked_share: 0 } },
        'three, the last not yet taken',
      );
      const id = await poll(place);
      await finds(t, place, { reservations_lapse: { lapsed: 3, acked: 0, acked_share: 0 } }, 'taken');
      await place.ack(id);
      await finds(t, place, {}, 'one of four was acked');
      await lapse(database, id);
      await lapseOne();
      await poll(place);
      await finds(
        t,
        place,
        {
          reservations_lapse: { lapsed: 4, acked: 1, acked_share: 0.2 },
          acked_never_beat: { lapsed: 1, beat: 0 },
        },
        'one of five',
      );
      await database.rows(sql`update ${database.names.handOuts} set lapsed_at = lapsed_at - interval '1 hour'
        where environment_id = ${place.environment.id}`);
      await finds(t, place, {}, 'long ago');
    });

    const presentId = async ({ environment }: Place): Promise<string> => {
      const [row] = await database.rows(
        sql<{ id: string }>`select id from ${workItems} where environment_id = ${environment.id}`,
      );
      return row?.id ?? '';
    };

    t.test('acked_never_beat: a startup lease lapsed within the hour, and not one among many', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const id = await poll(place);
      await place.ack(id);
      await finds(t, place, {}, 'starting');
      await setLease(place, id, -60);
      const found = { acked_never_beat: { lapsed: 1, beat: 0 } };
      await finds(t, place, found, 'lapsed');
      await queue.sweep();
      await finds(t, place, found, 'swept');
      await poll(place);
      await finds(t, place, found, 'handed out again');
      for (let n = 1; n <= 5; n++) {
        await place.enqueue();
        const other = await poll(place);
        await place.ack(other);
        await place.beat(other, 'NO_HEARTBEAT');
        await place.forceStop(other);
        await finds(t, place, n < 5 ? { acked_never_beat: { lapsed: 1, beat: n } } : {}, `beside ${n} that beat`);
      }
    });

    t.test('runs_end_at_same_age: three runs of a day went silent at one age', async (t) => {
      const place = await newPlace(server);
      /** A run that beat for so long, and then no more. */
      const run = async (ageSeconds: number) => {
        await place.enqueue();
        const id = await poll(place);
        await place.ack(id);
        await place.beat(id, 'NO_HEARTBEAT');
        await database.rows(sql`update ${workItems} set started_at = last_heartbeat - ${ageSeconds} * interval '1 second',
          acknowledged_at = acknowledged_at - ${ageSeconds} * interval '1 second',
          handed_out_at = handed_out_at - ${ageSeconds} * interval '1 second' where id = ${id}`);
        await setLease(place, id, -60);
        return id;
      };
      const evidence = (runs: number, median: number, min: number, max: number) => ({
        runs_end_at_same_age: { runs, median_seconds: median, min_seconds: min, max_seconds: max },
      });
      await place.enqueue();
      await lapse(database, await poll(place));
      await place.forceStop(await poll(place));
      await run(600);
      await poll(place);
      const second = await run(659);
      await finds(t, place, {}, 'two, and a hand-out that never ran');
      await run(545);
      await finds(t, place, evidence(3, 600, 545, 659), 'three, within a tenth');
      await queue.sweep();
      await finds(t, place, evidence(3, 600, 545, 659), 'swept');
      await poll(place);
      await poll(place);
      await finds(t, place, evidence(3, 600, 545, 659), 'handed out again');
      await database.rows(sql`update ${database.names.handOuts} set started_at = started_at - interval '2 seconds'
        where work_id = ${second}`);
      await finds(t, place, {}, 'one is further off than a tenth');
      await database.rows(sql`update ${database.names.handOuts}
        set started_at = last_heartbeat - case when work_id = ${second} then 9 else 4 end * interval '1 second'
        where environment_id = ${place.environment.id}`);
      await finds(t, place, evidence(3, 4, 4, 9), 'short ones, within 5 s');
      await database.rows(sql`update ${database.names.handOuts} set lapsed_at = lapsed_at - interval '1 day'
        where work_id = ${second}`);
      await finds(t, place, {}, 'one of them long ago');
    });

    t.test('paused and archived are told', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      await poll(place);
      await database.rows(
        sql`update ${environments} set paused_at = clock_timestamp() where id = ${place.environment.id}`,
      );
      await finds(t, place, { paused: { paused_at: /Z$/, queued: 1 } });
      const archive = await call('POST', `/v1/environments/${place.environment.id}/archive`, { as: OPERATOR_KEY });
      t.equal(archive.status, 200);
      const archived_at = archive.json.archived_at;
      await finds(t, place, { archived: { archived_at, queued: 1 }, paused: { paused_at: /Z$/, queued: 1 } });
    });

    t.test('not_yet_due: all that is queued is for later', async (t) => {
      const place = await newPlace(server);
      const environmentId = place.environment.id;
      const later = (sessionId: string, notBefore: string) => queue.enqueue({ environmentId, sessionId, notBefore });
      await later('later', '2999-01-01T00:00:00Z');
      await later('earlier', '2998-01-01T00:00:00Z');
      await finds(t, place, { not_yet_due: { queued: 2, earliest_due_at: '2998-01-01T00:00:00.000000Z' } });
      await place.enqueue();
      await poll(place);
      await finds(t, place, {}, 'and one that is reserved');
    });

    t.test('age_floor: every live key waits for older work', async (t) => {
      const place = await newPlace(server);
      const floor = (name: string, ms: number | null) =>
        database.rows(sql`update ${credentials} set min_queued_age_ms = ${ms}
          where environment_id = ${place.environment.id} and name = ${name}`);
      const found = { age_floor: { keys: 1, min_queued_age_ms: 60_000, oldest_queued_age_ms: /^\d{1,5}$/ } };
      await place.enqueue();
      await poll(place);
      const notBefore = '2999-01-01T00:00:00Z';
      await queue.enqueue({ environmentId: place.environment.id, sessionId: 'later', notBefore });
      await move(place, 'created_at', 61);
      await floor('workers', 60_000);
      await finds(t, place, {}, 'none is free');
      await place.enqueue();
      await finds(t, place, found, 'one key; what is reserved or for later may be as old as it likes');
      const other = await issueKey(database, { environmentId: place.environment.id, name: 'other' });
      await finds(t, place, {}, 'another takes anything');
      await floor('other', 90_000);
      await finds(t, place, { age_floor: { ...found.age_floor, keys: 2 } }, 'it has a floor, too');
      await floor('other', null);
      await database.rows(sql`update ${credentials} set revoked_at = clock_timestamp() where id = ${other.id}`);
      await finds(t, place, found, 'it is revoked');
      await database.rows(sql`update ${credentials} set revoked_at = null where id = ${other.id}`);
      await finds(t, place, {}, 'it is not');
      await database.rows(sql`update ${credentials} set expires_at = clock_timestamp() where id = ${other.id}`);
      await finds(t, place, found, 'it has expired');
      await move(place, 'created_at', 61);
      await finds(t, place, {}, 'old enough');
    });

    t.test('all_set_aside: nothing else is left', async (t) => {
      const place = await newPlace(server);
      await place.enqueue('failed');
      const id = await poll(place);
      await place.forceStop(id);
      await finds(t, place, {}, 'stopped');
      for (const reason of ['failed', 'exhausted']) {
        await database.rows(sql`update ${workItems} set stop_reason = ${reason} where id = ${id}`);
        await finds(t, place, { all_set_aside: { set_aside: 1 } }, reason);
      }
      await place.enqueue('queued');
      const other = await poll(place);
      await finds(t, place, {}, 'another is queued');
      await place.ack(other);
      await place.beat(other, 'NO_HEARTBEAT');
      await finds(t, place, {}, 'held');
      await place.forceStop(other);
      await finds(t, place, { all_set_aside: { set_aside: 1 } }, 'the other has ended');
      const back = await requeueSetAside(database, { environmentId: place.environment.id, id });
      await place.forceStop(back.id);
      await finds(t, place, {}, 'somebody has decided: it was put back');
      const gauges = await server.queue.allStats();
      t.match(
        gauges.find(({ environmentId }) => environmentId === place.environment.id),
        { setAside: 0 },
      );
    });

    t.test('refusals that cannot be written change no answer, not even of the diagnosis', async (t) => {
      const watched = watch(database, STATEMENTS.refusals);
      const other = await testServer(t, { database: watched.database });
      watched.fail(new Error('no'));
      const path = other.work('/poll');
      checkRefusal(t, await other.call('GET', path, { as: null }), 401, 'poll');
      const diagnosis = `/control/v1/environments/${other.environment.id}/diagnosis`;
      t.strictSame((await other.call('GET', diagnosis, { as: OPERATOR_KEY })).json.data, []);
      t.equal(watched.begun(), 1, 'it was tried');
    });

    t.test(
      'refusals add up by the minute, those of unknown environments are passed over, old ones pruned',
      async (t) => {
        const place = await newPlace(server);
        const environmentId = place.environment.id;
        const counts = async () =>
          (
            await database.rows(sql<{ row: string }>`select r.refusal || ' ' || r.count as row from ${refusals} r
            where r.environment_id = ${environmentId} order by r.minute, r.refusal`)
          ).map(({ row }) => row);
        const refused = { environmentId, refusal: 'credential', count: 2, ageMs: 0 } as const;
        const [clock] = await database.rows(
          sql<{ ms: number }>`select (extract(second from clock_timestamp()) * 1000)::integer as ms`,
        );
        // The middle of a minute: both are told within the same one.
        const anHourMs = 3_600_000 + (clock?.ms ?? 0) - 30_000;
        await database.rows(sql`insert into ${refusals} (environment_id, refusal, minute, count, last_at)
        select ${environmentId}, 'credential', clock_timestamp() - age, 7, clock_timestamp() - age
        from unnest('{25 hours,23 hours}'::interval[]) age`);
        t.strictSame(await counts(), ['credential 7', 'credential 7']);
        await recordRefusals(database, [
          { ...refused, environmentId: 'env_unknown' },
          refused,
          { ...refused, refusal: 'heartbeat' },
          { ...refused, count: 5, ageMs: anHourMs },
        ]);
        const added = ['credential 7', 'credential 5', 'credential 2', 'heartbeat 2'];
        t.strictSame(await counts(), added);
        await recordRefusals(database, [{ ...refused, count: 1, ageMs: anHourMs }]);
        t.equal((await counts()).filter((row) => row === 'credential 6').length, 1, 'added to its minute');
      },
    );
  });
}
