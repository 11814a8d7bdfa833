import t, { type Test } from 'tap';
import { archiveEnvironment, deleteEnvironment } from '../../src/control/change-environment.ts';
import { createEnvironment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import { acquireLock } from '../../src/locks/acquire.ts';
import { renewLock } from '../../src/locks/renew.ts';
import { releaseLock } from '../../src/locks/release.ts';
import { rowCounts } from '../support/changes.ts';
import { type Answer, ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { holding } from '../support/interleave.ts';
import { expireLock, lockRoutes, lockRow } from '../support/locks.ts';
import { checkRefusal } from '../support/wire.ts';

const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/** From the answer to the expiry, to the second. */
const isAbout = (t: Test, { json }: Answer, seconds: number, what: string) =>
  t.ok(json.expires_in_ms > (seconds - 5) * 1_000 && json.expires_in_ms <= seconds * 1_000, `${what}: ${seconds} s`);

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database, queue } = server;
    let count = 0;
    const place = async () => {
      const { id } = await createEnvironment(database, { name: `locks ${count++}`, type: 'self_hosted' });
      const ref = (name: string) => ({ environmentId: id, name });
      return { id, ref, locks: lockRoutes(server, id, OPERATOR_KEY) };
    };

    t.test(
      'a free lock is taken, for a minute unless told otherwise, and another owner is told until when',
      async (t) => {
        const { id, locks } = await place();
        const taken = await locks.acquire('call', 'one');
        t.equal(taken.status, 200);
        t.match(taken.json, { type: 'lock', environment_id: id, name: 'call', owner: 'one', expires_at: INSTANT });
        t.match(taken.json, { acquired_at: INSTANT, token: Number });
        isAbout(t, taken, 60, 'a minute');
        const refused = await locks.acquire('call', 'other', 3_600);
        checkRefusal(t, refused, 409, 'another owner');
        const { expires_in_ms: expiresInMs, ...details } = refused.json.error.details;
        t.strictSame(details, { error_code: 'lock_held', locked: true, expires_at: taken.json.expires_at });
        t.ok(expiresInMs > 0 && expiresInMs <= taken.json.expires_in_ms);
        const neighbour = await locks.acquire('neighbour', 'other', 5);
        t.ok(neighbour.json.token > taken.json.token, 'tokens only grow');
        isAbout(t, neighbour, 5, 'as told');
      },
    );

    t.test('a refused owner leaves the lock as it was', async (t) => {
      const { ref, locks } = await place();
      await locks.acquire('call', 'one', 5);
      const before = await lockRow(database, ref('call'));
      checkRefusal(t, await locks.acquire('call', 'other', 3_600), 409, 'held');
      t.strictSame(await lockRow(database, ref('call')), before);
    });

    t.test('the same owner gets the same token again, and the longer expiry', async (t) => {
      const { locks } = await place();
      const first = await locks.acquire('call', 'one', 5);
      const again = await locks.acquire('call', 'one', 300);
      t.strictSame([again.json.token, again.json.acquired_at], [first.json.token, first.json.acquired_at]);
      isAbout(t, again, 300, 'extended');
      const shorter = await locks.acquire('call', 'one', 5);
      t.strictSame(shorter.json.expires_at, again.json.expires_at, 'never shortened');
    });

    t.test('an expired lock is taken over, by whoever asks next, under a new token', async (t) => {
      const { ref, locks } = await place();
      const first = await locks.acquire('call', 'one');
      await expireLock(database, ref('call'));
      const other = await locks.acquire('call', 'other', 5);
      t.match(other.json, { owner: 'other' });
      t.ok(other.json.token > first.json.token);
      t.ok(other.json.acquired_at > first.json.acquired_at);
      isAbout(t, other, 5, 'its own expiry');
      await expireLock(database, ref('call'));
      const again = await locks.acquire('call', 'other');
      t.ok(again.json.token > other.json.token, 'also by the owner who had it');
    });

    t.test('its token renews a lock, and nothing else does', async (t) => {
      const { ref, locks } = await place();
      const { json } = await locks.acquire('call', 'one', 5);
      const renewed = await locks.renew('call', json.token);
      t.match(renewed.json, { type: 'lock', token: json.token, owner: 'one', acquired_at: json.acquired_at });
      isAbout(t, renewed, 60, 'a minute unless told otherwise');
      t.equal((await locks.renew('call', json.token, 1)).json.expires_at, renewed.json.expires_at, 'never shortened');
      const neighbour = await locks.acquire('neighbour', 'one', 5);
      const before = await lockRow(database, ref('call'));
      for (const [name, token] of [
        ['call', json.token + 1_000],
        ['call', neighbour.json.token],
        ['nobody has taken', json.token],
      ] as const) {
        const refused = await locks.renew(name, token, 3_600);
        checkRefusal(t, refused, 409, `${name}, ${token}`);
        t.strictSame(refused.json.error.details, { error_code: 'lock_lost' });
      }
      t.strictSame(await lockRow(database, ref('call')), before);
      await expireLock(database, ref('call'));
      const lapsed = await lockRow(database, ref('call'));
      checkRefusal(t, await locks.renew('call', json.token), 409, 'expired, though nobody took it');
      t.strictSame(await lockRow(database, ref('call')), lapsed);
    });

    t.test('its token lets a lock go, once; nothing else does, and none of it is an error', async (t) => {
      const { ref, locks } = await place();
      const { json } = await locks.acquire('call', 'one');
      const neighbour = await locks.acquire('neighbour', 'one');
      const before = await lockRow(database, ref('call'));
      const released = async (name: string, token: number) => {
        const answer = await locks.release(name, token);
        t.equal(answer.status, 200);
        t.equal(answer.json.type, 'lock_released');
        return answer.json.released;
      };
      t.equal(await released('call', neighbour.json.token), false);
      t.equal(await released('nobody has taken', json.token), false);
      t.strictSame(await lockRow(database, ref('call')), before);
      t.equal(await released('call', json.token), true);
      const after = await lockRow(database, ref('call'));
      t.equal(await released('call', json.token), false, 'sent again, as after a lost answer');
      t.strictSame(await lockRow(database, ref('call')), after);
      checkRefusal(t, await locks.renew('call', json.token), 409, 'renewing what was let go');
      const next = await locks.acquire('call', 'other');
      t.ok(next.json.token > json.token, 'free at once');
      t.equal(await released('call', json.token), false, "a late one leaves another's lock alone");
      t.match((await locks.renew('call', next.json.token)).json, { owner: 'other' });
    });

    t.test('a release is told of once, and only when there was one', async (t) => {
      const { id, locks } = await place();
      const told: unknown[] = [];
      t.teardown(queue.onHint(id, (hint) => told.push(hint)));
      const { json } = await locks.acquire('call', 'one');
      await locks.release('call', json.token + 1);
      t.same(told, []);
      await locks.release('call', json.token);
      await locks.release('call', json.token);
      t.same(told, [{ type: 'lock_released', name: 'call' }]);
    });

    t.test('a name belongs to one environment', async (t) => {
      const [here, there] = [await place(), await place()];
      const ours = await here.locks.acquire('call', 'one');
      const theirs = await there.locks.acquire('call', 'other');
      t.strictSame([ours.status, theirs.status], [200, 200]);
      t.equal((await there.locks.release('call', ours.json.token)).json.released, false);
      checkRefusal(t, await there.locks.renew('call', ours.json.token), 409, 'renewed elsewhere');
      t.match((await here.locks.list()).json.data, [{ name: 'call', owner: 'one' }]);
      await expireLock(database, there.ref('call'));
      checkRefusal(t, await here.locks.acquire('call', 'other'), 409, 'still held here');
    });

    t.test('what is held is listed by pages, the last acquired first', async (t) => {
      const [{ id, ref, locks }, elsewhere] = [await place(), await place()];
      await elsewhere.locks.acquire('of another environment', 'one');
      for (const name of ['a', 'b', 'c', 'expired', 'released']) await locks.acquire(name, `owner of ${name}`);
      await expireLock(database, ref('expired'));
      const { json: released } = await locks.acquire('released', 'owner of released');
      await locks.release('released', released.token);
      const whole = (await locks.list()).json;
      t.strictSame(
        whole.data.map(({ name }: { name: string }) => name),
        ['c', 'b', 'a'],
      );
      t.equal(whole.next_page, null);
      t.match(whole.data[0], { type: 'lock', environment_id: id, owner: 'owner of c', token: Number });
      const first = (await locks.list('?limit=2')).json;
      t.match(first, { data: [{ name: 'c' }, { name: 'b' }], next_page: /./ });
      t.match((await locks.list(`?limit=2&page=${first.next_page}`)).json, { data: [{ name: 'a' }], next_page: null });
      checkRefusal(t, await locks.list('?page=nonsense'), 400, 'a page that is none');
      checkRefusal(t, await locks.list('?limit=1001'), 400, 'a page that is too long');
    });

    t.test('any text of up to 256 characters is a name, but for those that a path cannot carry', async (t) => {
      const { locks } = await place();
      const names = ['a/b c', '\u{1F511}'.repeat(256), '%2F', '..x', 'ü', ' ', '"', 'null', '\u0001'];
      for (const name of names) {
        const { status, json } = await locks.acquire(name, 'one');
        t.strictSame([status, json.name], [200, name]);
        t.equal((await locks.release(name, json.token)).json.released, true, name);
      }
      for (const name of ['', 'x'.repeat(257), '\0'])
        checkRefusal(t, await locks.acquire(name, 'one'), 400, 'a bad name');
      checkRefusal(t, await locks.acquire('x'.repeat(5_000), 'one'), 404, 'no path');
      const ref = (name: string) => ({ environmentId: server.environment.id, name });
      for (const name of ['.', '..', '', 'x'.repeat(257), '\ud800']) {
        const refused = { code: 'invalid_request', message: /name must/ };
        await t.rejects(acquireLock(database, { ...ref(name), owner: 'one' }), refused);
        await t.rejects(renewLock(database, { ...ref(name), token: 1 }), refused);
        await t.rejects(releaseLock(database, { ...ref(name), token: 1 }), refused);
      }
    });

    t.test('a bad field is refused by name and range', async (t) => {
      const { id } = await place();
      const send = (method: string, verb: string, body: unknown) =>
        server.call(method, `/control/v1/environments/${id}/locks/call${verb}`, { as: OPERATOR_KEY, body });
      const cases: [method: string, verb: string, body: unknown, message: RegExp][] = [
        ['PUT', '', {}, /owner/],
        ['PUT', '', { owner: '' }, /owner must be a string of 1 to 256/],
        ['PUT', '', { owner: 'x'.repeat(257) }, /owner must be a string of 1 to 256/],
        ['PUT', '', { owner: 'x\0' }, /owner must not hold NUL/],
        ['PUT', '', { owner: 'x', ttl_seconds: 0 }, /ttl_seconds must be an integer from 1 to 3600/],
        ['PUT', '', { owner: 'x', ttl_seconds: 3_601 }, /ttl_seconds must be an integer from 1 to 3600/],
        ['PUT', '', { owner: 'x', ttl_seconds: '5' }, /ttl_seconds must be an integer/],
        ['PUT', '', { owner: 'x', token: 1 }, /token/],
        ['POST', '/renew', {}, /token/],
        ['POST', '/renew', { token: 0 }, /token must be an integer/],
        ['POST', '/renew', { token: 1, ttl_seconds: 3_601 }, /ttl_seconds must be an integer from 1 to 3600/],
        ['POST', '/release', { token: 1.5 }, /token must be an integer/],
        ['POST', '/release', { token: 1, owner: 'x' }, /owner/],
      ];
      for (const [method, verb, body, message] of cases) {
        const answer = await send(method, verb, body);
        checkRefusal(t, answer, 400, JSON.stringify(body));
        t.match(answer.json.error.message, message, JSON.stringify(body));
      }
      await t.rejects(acquireLock(database, { environmentId: id, name: 'x', owner: 'x', ttlSeconds: 3_601 }), {
        code: 'invalid_request',
        message: /ttlSeconds must be an integer from 1 to 3600/,
      });
    });

    t.test(
      'an environment that is not there is 404; an archived one goes on; a deleted one takes its locks along',
      async (t) => {
        const { id, locks } = await place();
        const nowhere = lockRoutes(server, 'env_nowhere', OPERATOR_KEY);
        for (const answer of [
          await nowhere.acquire('call', 'one'),
          await nowhere.renew('call', 1),
          await nowhere.release('call', 1),
          await nowhere.list(),
        ]) {
          checkRefusal(t, answer, 404, 'no environment');
          t.equal(answer.json.error.details.error_code, 'environment_not_found');
        }
        await archiveEnvironment(database, id);
        const { json } = await locks.acquire('call', 'one');
        t.equal((await locks.renew('call', json.token)).status, 200);
        const { locks: held = 0 } = await rowCounts(database);
        await deleteEnvironment(database, id);
        t.equal((await rowCounts(database)).locks, held - 1);
        checkRefusal(t, await locks.release('call', json.token), 404, 'gone');
      },
    );

    t.test(
      'keys of the environment and tokens of its items hold locks; read-only keys look, strangers do not',
      async (t) => {
        const { environment, environmentKey } = server;
        const { id: held, sessionsToken } = await holding(server, `holder ${engine}`, 'active');
        const elsewhere = await place();
        const stranger = (await issueKey(database, { environmentId: elsewhere.id, name: 'stranger' })).key;
        const readOnly = (await issueKey(database, { environmentId: null, name: 'board', role: 'read_only' })).key;
        for (const as of [environmentKey, sessionsToken, OPERATOR_KEY]) {
          const locks = lockRoutes(server, environment.id, as);
          const { json } = await locks.acquire('call', 'one');
          t.equal((await locks.renew('call', json.token)).status, 200);
          t.match((await locks.list()).json.data, [{ name: 'call' }]);
          t.equal((await locks.release('call', json.token)).json.released, true);
        }
        const { json } = await lockRoutes(server, environment.id, OPERATOR_KEY).acquire('call', 'one');
        const before = await lockRow(database, { environmentId: environment.id, name: 'call' });
        for (const [as, status, listed] of [
          [readOnly, 403, 200],
          [stranger, 401, 401],
        ] as const) {
          const locks = lockRoutes(server, environment.id, as);
          checkRefusal(t, await locks.acquire('call', 'one', 3_600), status, 'acquire');
          checkRefusal(t, await locks.renew('call', json.token, 3_600), status, 'renew');
          checkRefusal(t, await locks.release('call', json.token), status, 'release');
          t.equal((await locks.list()).status, listed);
        }
        checkRefusal(t, await lockRoutes(server, elsewhere.id, sessionsToken).acquire('call', 'one'), 403, 'elsewhere');
        await server.call('POST', server.work(`/${held}/stop`), { body: { force: true } });
        const late = lockRoutes(server, environment.id, sessionsToken);
        checkRefusal(t, await late.release('call', json.token), 403, 'its hand-out is over');
        checkRefusal(t, await late.list(), 403, 'its hand-out is over');
        t.strictSame(await lockRow(database, { environmentId: environment.id, name: 'call' }), before);
      },
    );

    t.test('a lock leaves no audit entry, and an Idempotency-Key is not looked at', async (t) => {
      const { id, ref } = await place();
      const acquire = () =>
        server.call('PUT', `/control/v1/environments/${id}/locks/call`, {
          as: OPERATOR_KEY,
          headers: { 'idempotency-key': 'the same' },
          body: { owner: 'one' },
        });
      const before = await rowCounts(database);
      const first = await acquire();
      await expireLock(database, ref('call'));
      t.ok((await acquire()).json.token > first.json.token, 'what is expired is not answered again');
      const { auditLog, idempotencyKeys } = await rowCounts(database);
      t.strictSame([auditLog, idempotencyKeys], [before.auditLog, before.idempotencyKeys]);
    });
  });
}
