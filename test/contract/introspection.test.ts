import t from 'tap';
import { mintSecret } from '../../src/queue/ids.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { newPlace, sessionsTokenOf, setLease } from '../support/places.ts';
import { checkRefusal } from '../support/wire.ts';

const INACTIVE = { active: false, work_id: null, environment_id: null, session_id: null, state: null };

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { call, database } = server;
    const ask = (body: unknown) => call('POST', '/control/v1/tokens/introspect', { as: OPERATOR_KEY, body });
    const introspect = async (token: string) => (await ask({ token })).json;

    /** An item in somebody's hands, and what its token is told to be in each state. */
    const handOut = async () => {
      const place = await newPlace(server);
      await place.enqueue('session');
      const polled = await place.poll();
      const { id } = polled.json;
      const active = (state: string) => ({
        ...{ active: true, work_id: id, environment_id: place.environment.id, session_id: 'session', state },
      });
      return { place, id, token: sessionsTokenOf(polled), active };
    };

    t.test('a token is active from its hand-out until its item is stopped, and asking changes nothing', async (t) => {
      const { place, id, token, active } = await handOut();
      const check = async (answer: unknown, what: string) => {
        const before = await rowOf(database, id);
        t.strictSame(await introspect(token), answer, what);
        t.strictSame(await rowOf(database, id), before, `${what}: the row`);
      };
      await check(active('queued'), 'reserved');
      await place.ack(id);
      await check(active('starting'), 'acked');
      await place.beat(id, 'NO_HEARTBEAT');
      await check(active('active'), 'beating');
      await place.stop(id);
      await check(active('stopping'), 'winding down');
      await place.forceStop(id);
      await check(INACTIVE, 'stopped');
      await setLease(place, id, 60);
      await check(INACTIVE, 'stopped, whatever the lease');
    });

    t.test('a token is active no longer than its lease, and again when a late heartbeat extends that', async (t) => {
      const { place, id, token, active } = await handOut();
      await lapse(database, id);
      t.strictSame(await introspect(token), INACTIVE, 'the reservation lapsed');
      await place.ack(id);
      t.strictSame(await introspect(token), active('starting'), 'a late ack');
      await lapse(database, id);
      t.strictSame(await introspect(token), INACTIVE, 'the startup lease lapsed');
      await place.beat(id, 'NO_HEARTBEAT');
      t.strictSame(await introspect(token), active('active'));
      await setLease(place, id, null);
      t.strictSame(await introspect(token), INACTIVE, 'without a lease');
    });

    t.test('the token of a superseded hand-out is not active, the present one is', async (t) => {
      const { place, id, token } = await handOut();
      await lapse(database, id);
      const polled = await place.poll();
      t.strictSame(await introspect(token), INACTIVE);
      t.match(await introspect(sessionsTokenOf(polled)), { active: true, work_id: polled.json.id });
    });

    t.test('a token is proven by its secret, and any other text is not active', async (t) => {
      const { id, token } = await handOut();
      const other = await handOut();
      const secret = token.split('.')[1] ?? '';
      const texts = [
        `lhs_${id}.${mintSecret()}`,
        `lhs_${other.id}.${secret}`,
        `lhs_work_unknown.${secret}`,
        `${token}x`,
      ];
      texts.push(
        token.slice(0, -1),
        token.toUpperCase(),
        secret,
        id,
        OPERATOR_KEY,
        server.environmentKey,
        ' ',
        'x'.repeat(512),
      );
      for (const text of texts) t.strictSame(await introspect(text), INACTIVE, text.slice(0, 60));
      t.match(await introspect(token), { active: true });
    });

    t.test('a body that cannot be is 400, with the field and the rule', async (t) => {
      const bodies = [
        {},
        { token: 5 },
        { token: null },
        { token: '' },
        { token: 'x'.repeat(513) },
        { token: 'a\0b' },
        [],
      ];
      for (const body of [...bodies, { token: 'x', more: true }]) {
        const answer = await ask(body);
        checkRefusal(t, answer, 400, JSON.stringify(body).slice(0, 60));
        t.match(answer.json.error.message, /token|more|the body must be an object/);
      }
    });
  });
}
