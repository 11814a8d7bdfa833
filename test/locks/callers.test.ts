import t from 'tap';
import { ENGINES, lapse, testServer } from '../support/harness.ts';
import { lockRoutes } from '../support/locks.ts';
import { newPlace, sessionsTokenOf, setLease } from '../support/places.ts';

for (const engine of ENGINES) {
  t.test(`${engine}: a token opens locks while its own hand-out goes on under a live lease`, async (t) => {
    const server = await testServer(t, { engine });
    const place = await newPlace(server);
    const { id: environmentId } = place.environment;
    const statusFor = async (token: string) => (await lockRoutes(server, environmentId, token).list()).status;
    await place.enqueue();
    const unseen = await server.queue.poll({ environmentId });
    if (unseen === null) throw new Error('nothing was handed out');
    t.equal(await statusFor(unseen.sessionsToken), 200, 'reserved');
    await server.queue.putBack(unseen, true);
    const polled = await place.poll();
    const { id } = polled.json;
    const token = sessionsTokenOf(polled);
    t.equal(id, unseen.item.id);
    t.equal(await statusFor(unseen.sessionsToken), 403, 'of an earlier hand-out of the same id');
    t.equal(await statusFor(token), 200);
    await place.enqueue();
    const neighbour = sessionsTokenOf(await place.poll());
    await lapse(server.database, id);
    t.equal(await statusFor(token), 403, 'lapsed');
    await setLease(place, id, 60);
    t.equal(await statusFor(token), 200, 'as after a late heartbeat');
    await place.forceStop(id);
    await setLease(place, id, 60);
    t.equal(await statusFor(token), 403, 'stopped, whatever the lease');
    t.equal(await statusFor(neighbour), 200, 'a neighbour goes on');
  });
}
