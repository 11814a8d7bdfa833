import { sql } from 'kysely';
import t from 'tap';
import { ENGINES, rowOf, testServer } from '../support/harness.ts';
import { checkRefusal, exchange, head } from '../support/wire.ts';

/** None of them is a decimal integer of at least 1, though some parsers think so. */
const NO_INTEGERS = [
  '',
  '%205',
  '5%20',
  '+5',
  '%2B5',
  '1e2',
  '0x10',
  '0b1',
  '1.5',
  '1.0',
  '-1',
  '0',
  '-0',
  '1_000',
  '1,2',
  'five',
];
NO_INTEGERS.push('NaN', 'Infinity', 'null', 'true', '%D9%A5', '%EF%BC%95', '5%00', '5;6', '[5]');
const HUGE = '9'.repeat(40);
const EMOJI = '\u{1f680}'; // one character, two UTF-16 units
const COMBINED = 'e\u0301'; // one grapheme, two characters

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, work, enqueue, database, url } = server;
    let count = 0;
    const unique = (what = 'session') => `${what} ${count++}`;
    const leaseSeconds = async (id: string): Promise<number> => {
      const [row] = await database.rows(sql<{ seconds: string }>`
        select extract(epoch from w.lease_expires_at - clock_timestamp())::text as seconds
        from ${database.names.workItems} w where w.id = ${id}`);
      return Number(row?.seconds);
    };
    const drain = async () => {
      for (;;) {
        const { json } = await call('GET', work('/poll'));
        if (json === null) return;
        await call('POST', work(`/${json.id}/stop`));
      }
    };

    const integers = [
      { name: 'block_ms', method: 'GET', path: (q: string) => `/poll?${q}`, max: 999 },
      { name: 'reclaim_older_than_ms', method: 'GET', path: (q: string) => `/poll?${q}` },
      {
        name: 'desired_ttl_seconds',
        method: 'POST',
        path: (q: string, id: string) => `/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT&${q}`,
      },
      { name: 'limit', method: 'GET', path: (q: string) => `?${q}`, max: 1_000 },
    ];
    for (const { name, method, path, max } of integers) {
      const test = `${name} is ${max === undefined ? 'at least 1' : `from 1 to ${max}`}, in decimal digits, once; all else is refused`;
      t.test(test, async (t) => {
        const id = await enqueue(unique());
        await call('POST', work(`/${id}/ack`));
        const offered = await enqueue(unique());
        const before = [await rowOf(database, id), await rowOf(database, offered)];
        const wrong = NO_INTEGERS.map((text) => `${name}=${text}`);
        wrong.push(
          name,
          `${name}=5&${name}=5`,
          `${name}=&${name}=5`,
          ...(max ? [`${name}=${max + 1}`, `${name}=${HUGE}`] : []),
        );
        for (const query of wrong) {
          const answer = await exchange(url, head(server, method, work(path(query, id))));
          checkRefusal(t, answer, 400, query);
          t.match(answer.json.error.message, name, `${query}: named`);
          t.match(answer.json.error.message, max === undefined ? /at least 1\b/ : `1 to ${max}`, `${query}: its range`);
        }
        t.strictSame([await rowOf(database, id), await rowOf(database, offered)], before, 'the rows are as they were');
        for (const value of ['1', String(max ?? HUGE)]) {
          const fresh = await enqueue(unique());
          await call('POST', work(`/${fresh}/ack`));
          t.equal((await call(method, work(path(`${name}=${value}`, fresh)))).status, 200, `${name}=${value}`);
        }
        await drain();
      });
    }

    t.test('a reservation lasts as long as the poll asks, 5 s unasked, 600 s at most', async (t) => {
      const cases = [
        ['', 5],
        ['?reclaim_older_than_ms=90000', 90],
        ['?reclaim_older_than_ms=600000', 600],
      ] as const;
      for (const [query, seconds] of [
        ...cases,
        ['?reclaim_older_than_ms=600001', 600],
        [`?reclaim_older_than_ms=${HUGE}`, 600],
      ] as const) {
        const id = await enqueue(unique());
        t.equal((await call('GET', work(`/poll${query}`))).json.id, id, query);
        const left = await leaseSeconds(id);
        t.ok(left <= seconds && left > seconds - 3, `${query}: ${left} s`);
        await call('POST', work(`/${id}/stop`));
      }
    });

    t.test('a heartbeat lasts as long as it asks, 120 s unasked, 300 s at most, and says so', async (t) => {
      const id = await enqueue(unique());
      await call('POST', work(`/${id}/ack`));
      let token = 'NO_HEARTBEAT';
      const cases = [
        ['', 120],
        ['&desired_ttl_seconds=1', 1],
        ['&desired_ttl_seconds=300', 300],
      ] as const;
      for (const [query, seconds] of [
        ...cases,
        ['&desired_ttl_seconds=301', 300],
        [`&desired_ttl_seconds=${HUGE}`, 300],
      ] as const) {
        const { json } = await call('POST', work(`/${id}/heartbeat?expected_last_heartbeat=${token}${query}`));
        t.equal(json.ttl_seconds, seconds, query);
        const left = await leaseSeconds(id);
        t.ok(left <= seconds && left > seconds - 3, `${query}: ${left} s`);
        token = json.last_heartbeat;
      }
    });

    t.test('expected_last_heartbeat is required, once, of 1 to 64 characters; what is no token is 412', async (t) => {
      const id = await enqueue(unique());
      await call('POST', work(`/${id}/ack`));
      const before = await rowOf(database, id);
      const name = 'expected_last_heartbeat';
      const send = (query: string) => exchange(url, head(server, 'POST', work(`/${id}/heartbeat${query}`)));
      const wrong = [
        '',
        '?',
        `?${name}`,
        `?${name}=`,
        `?${name}=NO_HEARTBEAT&${name}=NO_HEARTBEAT`,
        `?${name}=${'x'.repeat(65)}`,
      ];
      wrong.push(
        `?${name}=${encodeURIComponent(COMBINED.repeat(33))}`,
        `?${name}=${encodeURIComponent(EMOJI.repeat(65))}`,
        `?${name}[]=x`,
      );
      for (const query of wrong) {
        const answer = await send(query);
        checkRefusal(t, answer, 400, query);
        t.match(answer.json.error.message, /expected_last_heartbeat.*1 to 64/, `${query}: named, with its range`);
      }
      const noTokens = [
        'x',
        'x'.repeat(64),
        encodeURIComponent(EMOJI.repeat(64)),
        '%20NO_HEARTBEAT',
        'no_heartbeat',
        "'--",
        'null',
      ];
      for (const token of [...noTokens, '2026-01-31T12:00:00Z', '9999999-99-99', '%C3%BC']) {
        checkRefusal(t, await send(`?${name}=${token}`), 412, token);
      }
      t.strictSame(await rowOf(database, id), before, 'the row is as it was');
    });

    t.test('force is true, false or absent, and nothing else is taken for it', async (t) => {
      const id = await enqueue(unique());
      await call('POST', work(`/${id}/ack`));
      await call('POST', work(`/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`));
      const before = await rowOf(database, id);
      for (const force of [1, 0, 'true', '', null, [], {}, [true]]) {
        const answer = await call('POST', work(`/${id}/stop`), { body: { force } });
        checkRefusal(t, answer, 400, JSON.stringify(force));
        t.match(answer.json.error.message, /force.*true or false/, `${JSON.stringify(force)}: named, with its range`);
      }
      for (const body of [[], [true], 'force', 1, true]) {
        checkRefusal(t, await call('POST', work(`/${id}/stop`), { body }), 400, JSON.stringify(body));
      }
      t.strictSame(await rowOf(database, id), before, 'the row is as it was');
      for (const [body, state] of [
        [{ force: false }, 'stopping'],
        [{ force: true, unknown: 1 }, 'stopped'],
      ] as const) {
        t.equal((await call('POST', work(`/${id}/stop`), { body })).status, 204);
        t.equal((await rowOf(database, id)).state, state, JSON.stringify(body));
      }
    });

    t.test('a worker id of 1 to 256 characters counts; longer or empty is ignored, not refused', async (t) => {
      const workers = async () => (await call('GET', work('/stats'))).json.workers_polling;
      const before = await workers();
      for (const worker of ['', ' ', 'x'.repeat(257), 'x'.repeat(4_000)]) {
        const answer = await call('GET', work('/poll'), { headers: { 'anthropic-worker-id': worker } });
        t.equal(answer.status, 200, worker.slice(0, 9));
        t.equal(await workers(), before, 'not counted');
      }
      for (const [index, worker] of ['x', 'y'.repeat(256), 'zoë'].entries()) {
        await call('GET', work('/poll'), { headers: { 'Anthropic-Worker-ID': worker } });
        t.equal(await workers(), before + index + 1, worker.slice(0, 9));
      }
    });
  });
}
