import { sql } from 'kysely';
import t from 'tap';
import { issueKey } from '../../src/control/keys.ts';
import { createQueue } from '../../src/create-queue.ts';
import type { Database } from '../../src/db/connect.ts';
import { STATEMENTS, watch } from '../support/gates.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testDatabase, testServer, until } from '../support/harness.ts';
import { itemIn, newPlace, type Place, type RowName } from '../support/places.ts';
import { BLOCK_MS, gotIt, waitingServer } from '../support/waiting.ts';

const AGE_MS = 60_000;
const OFFERED: readonly RowName[] = [
  ...(['queued, never handed out', 'queued, reservation lapsed', 'starting, lease lapsed'] as const),
  'active, lease lapsed',
];

const makeOld = ({ rows, names }: Database, id: string, ms = AGE_MS) =>
  rows(
    sql`update ${names.workItems} set created_at = clock_timestamp() - ${ms} * interval '1 millisecond' where id = ${id}`,
  );

/** A key of the environment that takes only what has waited for a minute. */
const agedKey = async ({ database, environment }: Pick<Place, 'database' | 'environment'>) =>
  (await issueKey(database, { environmentId: environment.id, name: 'patient', minQueuedAgeMs: AGE_MS })).key;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const plain = await testDatabase(t, engine);
    const server = await testServer(t, { database: plain });

    for (const row of OFFERED) {
      t.test(`a key with an age is offered only what was created that long ago (${row})`, async (t) => {
        const place = await newPlace(server);
        const as = await agedKey(place);
        const { id } = await itemIn(place, row);
        await makeOld(plain, id, AGE_MS - 10_000);
        const before = await rowOf(plain, id);
        t.equal((await place.poll('', { as })).text, 'null');
        t.equal((await place.poll('?block_ms=50', { as })).text, 'null');
        t.strictSame(await rowOf(plain, id), before);
        await makeOld(plain, id);
        const { json } = await place.poll('', { as });
        t.match(json, { id: String, state: 'queued' });
        await lapse(plain, json.id);
        t.match((await place.poll('', { as })).json, { id: String }, 'also when it lapsed again: it is no younger');
      });

      t.test(`a key without one and an API key are served as before (${row})`, async (t) => {
        const place = await newPlace(server);
        await agedKey(place);
        await itemIn(place, row);
        const { json } = await place.poll();
        t.match(json, { id: String });
        await lapse(plain, json.id);
        t.match((await place.poll('', { as: OPERATOR_KEY })).json, { id: String });
      });
    }

    t.test('a key with an age passes over what is too young, to what stands behind it', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const old = await place.enqueue();
      await makeOld(plain, old);
      t.equal((await place.poll('', { as: await agedKey(place) })).json?.id, old);
    });

    t.test('what is spent and too young is set aside by others only', async (t) => {
      const place = await newPlace(server);
      const as = await agedKey(place);
      const { id } = await itemIn(place, 'queued, reservation lapsed');
      await plain.rows(sql`update ${plain.names.workItems} set max_hand_outs = 1 where id = ${id}`);
      await place.poll('', { as });
      t.match(await rowOf(plain, id), { state: 'queued' });
      await makeOld(plain, id);
      await place.poll('', { as });
      t.match(await rowOf(plain, id), { stop_reason: 'exhausted' });
    });

    t.test('with both kinds waiting, an item goes to those without an age at once', async (t) => {
      const waiting = await waitingServer(t, { plain });
      const { environment, call, work, enqueue, looks, wait } = waiting;
      const as = await agedKey({ database: plain, environment });
      const looked = looks.ended();
      const patient = call('GET', work(`/poll?block_ms=${BLOCK_MS}`), { as });
      await until('the patient one was looked for', () => looks.ended() > looked);
      const { ended } = await wait();
      const id = await enqueue('session');
      gotIt(t, await ended, id);
      t.equal((await patient).text, 'null');
    });

    t.test('with both kinds waiting, an old item that becomes free goes to one of them, at once', async (t) => {
      const waiting = await waitingServer(t, { plain });
      const { environment, call, work, enqueue, queue, looks } = waiting;
      const as = await agedKey({ database: plain, environment });
      const id = await enqueue('session');
      const handOut = await queue.poll({ environmentId: environment.id });
      await makeOld(plain, id);
      const polls = [];
      for (const options of [{ as }, {}]) {
        const looked = looks.ended();
        polls.push(call('GET', work(`/poll?block_ms=${BLOCK_MS}`), options));
        await until('it was looked for', () => looks.ended() > looked);
      }
      if (handOut === null) throw new Error('nothing was handed out');
      await queue.putBack(handOut, true);
      const got = (await Promise.all(polls)).map(({ json }) => json?.id);
      t.strictSame(got.filter(Boolean), [id]);
    });

    t.test('what was taken for a client of the one kind that went away goes to the other kind', async (t) => {
      const looks = watch(plain, STATEMENTS.look);
      const queue = createQueue({ database: looks.database });
      t.teardown(() => queue.close());
      const place = await newPlace(server);
      const environmentId = place.environment.id;
      const id = await place.enqueue();
      await makeOld(plain, id);
      const client = new AbortController();
      looks.close();
      const gone = queue.poll({ environmentId, minQueuedAgeMs: AGE_MS, signal: client.signal });
      await until('the item is taken', () => looks.ended() === 1);
      const other = queue.poll({ environmentId, blockMs: BLOCK_MS });
      await until('the other line found nothing', () => looks.ended() === 2);
      client.abort();
      looks.open();
      t.equal(await gone, null);
      t.equal((await other)?.item.id, id, 'woken, not out of time');
    });

    t.test('the follow-up of what a poll set aside is for every line, not for its own alone', async (t) => {
      const waiting = await waitingServer(t, { plain });
      const { queue, environment, wait } = waiting;
      const environmentId = environment.id;
      await queue.enqueue({ environmentId, sessionId: 'session', maxHandOuts: 1 });
      const { id } = (await waiting.poll()).answer.json;
      await makeOld(plain, id);
      await queue.enqueue({ environmentId, sessionId: 'session', requestId: 'next', followUp: true });
      const { ended } = await wait();
      await lapse(plain, id);
      t.equal(await queue.poll({ environmentId, minQueuedAgeMs: AGE_MS }), null, 'too young for the key with an age');
      t.match(await rowOf(plain, id), { stop_reason: 'exhausted' });
      const timed = await ended;
      t.type(timed.answer.json?.id, 'string');
      gotIt(t, timed, timed.answer.json?.id);
    });
  });
}
