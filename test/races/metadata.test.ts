import t from 'tap';
import { testServer } from '../support/harness.ts';
import { holdRow } from '../support/interleave.ts';

t.test('8 patches that wait for one row each find what the one before them wrote', async (t) => {
  const { database, call, work, enqueue } = await testServer(t);
  const id = await enqueue('session', { kept: 'yes', 'gone-0': 'x', 'gone-1': 'x' });
  const row = await holdRow(t, database, id);
  const patches = Array.from({ length: 8 }, (_, n) =>
    call('POST', work(`/${id}`), { body: { metadata: { [`key-${n}`]: `${n}`, [`gone-${n}`]: null } } }),
  );
  await row.untilBlocked(8);
  await row.commit();
  t.same(
    (await Promise.all(patches)).map((answer) => answer.status),
    patches.map(() => 200),
  );
  const { metadata } = (await call('GET', work(`/${id}`))).json;
  t.same(metadata, { kept: 'yes', ...Object.fromEntries(patches.map((_, n) => [`key-${n}`, `${n}`])) });
});

t.test('two patches that together pass the limit: one is refused, checked on the merged result', async (t) => {
  const { database, call, work, enqueue } = await testServer(t);
  const id = await enqueue('session', Object.fromEntries(Array.from({ length: 15 }, (_, n) => [`key-${n}`, ''])));
  const row = await holdRow(t, database, id);
  const patches = ['one', 'two'].map((key) => call('POST', work(`/${id}`), { body: { metadata: { [key]: '' } } }));
  await row.untilBlocked(2);
  await row.commit();
  t.same((await Promise.all(patches)).map((answer) => answer.status).sort(), [200, 400]);
  t.equal(Object.keys((await call('GET', work(`/${id}`))).json.metadata).length, 16);
});
