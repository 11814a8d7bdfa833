import t from 'tap';
import { watchPromise } from './support/gates.ts';
import { ENGINES, testDatabase, until } from './support/harness.ts';
import { BLOCK_MS, gotIt, IN_TIME_MS, quickest, waitingServer } from './support/waiting.ts';

const LATE_MS = 1_500;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const plain = await testDatabase(t, engine);

    for (const blockMs of [1, 250, 999]) {
      t.test(`a poll that may wait ${blockMs} ms is answered null when its time is up`, async (t) => {
        const { poll } = await waitingServer(t, { plain });
        const least = await quickest(blockMs + LATE_MS, async () => {
          const { answer, ms } = await poll(blockMs);
          t.match(answer, { status: 200, text: 'null' });
          t.ok(ms >= blockMs - 1, `answered after ${ms} ms`);
          return ms;
        });
        t.ok(least < blockMs + LATE_MS, `answered after ${least} ms`);
      });
    }

    t.test(`a poll without block_ms does not wait`, async (t) => {
      const { poll } = await waitingServer(t, { plain });
      const least = await quickest(IN_TIME_MS, async () => {
        const { answer, ms } = await poll();
        t.equal(answer.text, 'null');
        return ms;
      });
      t.ok(least < IN_TIME_MS, `answered after ${least} ms`);
    });

    t.test(`an enqueue in the same process ends the wait`, async (t) => {
      const { wait, enqueue } = await waitingServer(t, { plain });
      const { ended } = await wait();
      const id = await enqueue('session');
      gotIt(t, await ended, id);
    });

    t.test(`an enqueue that commits while the poll is being looked for ends the wait`, async (t) => {
      const { looks, poll, enqueue } = await waitingServer(t, { plain });
      looks.close();
      const ended = poll(BLOCK_MS);
      await until('the look found nothing', () => looks.ended() === 1);
      const id = await enqueue('session');
      looks.open();
      gotIt(t, await ended, id);
    });

    t.test(`polls that wait get items in the order in which they came, one each`, async (t) => {
      const { wait, enqueue, looks } = await waitingServer(t, { plain });
      const polls = [await wait(), await wait(), await wait()].map(({ ended }) => ({
        ended,
        seen: watchPromise(ended),
      }));
      for (const [n, { ended }] of polls.entries()) {
        if (n === 2) break;
        const looked = looks.ended();
        const id = await enqueue(`session-${n}`);
        gotIt(t, await ended, id);
        t.equal(looks.ended() - looked, 1, 'one look, whoever waits');
        t.notOk(polls[n + 1]?.seen.settled, 'the next one waits on');
      }
      t.equal((await polls[2]?.ended)?.answer.text, 'null');
    });

    t.test(`a put-back item ends the wait of another poll`, async (t) => {
      const { queue, environment, enqueue, wait } = await waitingServer(t, { plain });
      const id = await enqueue('session');
      const handOut = await queue.poll({ environmentId: environment.id });
      const { ended } = await wait();
      if (handOut !== null) await queue.putBack(handOut, true);
      gotIt(t, await ended, id);
    });

    t.test(`when the server stops, waiting polls are answered null and others are still looked for`, async (t) => {
      const least = await quickest(IN_TIME_MS, async () => {
        const { queue, wait, poll, enqueue, app } = await waitingServer(t, { plain });
        const { ended } = await wait();
        void app.drain();
        queue.stopWaiting();
        const { answer, ms } = await ended;
        t.match(answer, { status: 200, text: 'null' });
        const late = await poll(BLOCK_MS);
        t.match(late.answer, { status: 200, text: 'null' });
        const id = await enqueue('session');
        t.equal((await poll()).answer.json.id, id);
        return Math.max(ms, late.ms);
      });
      t.ok(least < IN_TIME_MS, `at once, and so is a poll that comes later: after ${least} ms`);
    });
  });
}
