import t, { type Test } from 'tap';
import { ENGINES, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { checkCarries, checkRefusal, exchange, head } from '../support/wire.ts';

const BODY_BYTES_MAX = 1_048_576; // contract §7
const JSON_TYPE = { 'content-type': 'application/json' };

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, work, enqueue, database, environment, url } = server;
    const id = await enqueue('session', { kept: 'yes' });
    const before = await rowOf(database, id);
    const patch = (headers: Record<string, string>) =>
      head(server, 'POST', work(`/${id}`), { ...JSON_TYPE, ...headers });
    const test = (name: string, body: (t: Test) => Promise<void>) =>
      t.test(name, async (t) => {
        await body(t);
        t.strictSame(await rowOf(database, id), before, 'a refusal leaves the row as it was');
      });

    test('HTTP that cannot be read is answered with the envelope', async (t) => {
      const stats = head(server, 'GET', work('/stats'));
      const broken: readonly (readonly [string, string, number])[] = [
        ['no HTTP at all', 'hello\r\n\r\n', 400],
        ['an unknown version', stats.replace('HTTP/1.1', 'HTTP/9.9'), 400],
        ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
        ['an unknown method', stats.replace('GET', 'BREW'), 400],
        ['a space in the path', stats.replace('/stats', '/st ats'), 400],
        ['a header without a colon', stats.replace('host: test', 'host test'), 400],
        ['a NUL in a header', stats.replace('host: test', 'host: te\0st'), 400],
        ['a length that is no number', patch({ 'content-length': 'many' }), 400],
        ['two framings', patch({ 'content-length': '4', 'transfer-encoding': 'chunked' }), 400],
        ['a bad chunk', `${patch({ 'transfer-encoding': 'chunked' })}zz\r\n`, 400],
        ['headers past the limit', head(server, 'GET', work('/stats'), { 'x-long': 'x'.repeat(20_000) }), 413],
      ];
      for (const [what, bytes, status] of broken) checkRefusal(t, await exchange(url, bytes), status, what);
    });

    test('a missing Host and an unknown expectation are no reason for a bare answer', async (t) => {
      for (const bytes of [
        head(server, 'GET', work('/stats')).replace('host: test\r\n', ''),
        head(server, 'GET', work('/stats'), { expect: 'nothing' }),
      ]) {
        const answer = await exchange(url, bytes);
        checkCarries(t, answer, bytes);
        if (answer.status >= 400) checkRefusal(t, answer, answer.status, bytes);
        else t.equal(answer.json.type, 'work_queue_stats');
      }
    });

    test('a body of more than 1 MiB is 413, declared or chunked', async (t) => {
      const size = BODY_BYTES_MAX + 1;
      const chunk = `${size.toString(16)}\r\n${' '.repeat(size)}\r\n0\r\n\r\n`;
      checkRefusal(t, await exchange(url, patch({ 'content-length': String(size) })), 413, 'declared');
      checkRefusal(t, await exchange(url, patch({ 'transfer-encoding': 'chunked' }) + chunk), 413, 'chunked');
    });

    test('a body of 1 MiB is read', async (t) => {
      const answer = await call('POST', work(`/${id}`), {
        raw: '{"metadata":{}}'.padEnd(BODY_BYTES_MAX),
        headers: JSON_TYPE,
      });
      t.equal(answer.status, 200);
    });

    test('a body that is not JSON in UTF-8 is 400', async (t) => {
      const bodies: (string | Buffer)[] = [
        '{',
        'nope',
        '{"metadata":{}',
        "{'metadata':{}}",
        '{"metadata":{},}',
        '{"metadata":{}} x',
      ];
      bodies.push(
        Buffer.from('{"metadata":{"a":"\xff"}}', 'latin1'),
        Buffer.from('{"metadata":{"a":"\xed\xa0\x80"}}', 'latin1'),
      );
      bodies.push(Buffer.from('{"metadata":{}}', 'utf16le'));
      for (const raw of bodies) {
        checkRefusal(t, await call('POST', work(`/${id}`), { raw, headers: JSON_TYPE }), 400, String(raw));
      }
    });

    test('a body of another type is 400 where a body is read', async (t) => {
      for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonp', 'json', ';', '']) {
        const headers = { 'content-type': type };
        checkRefusal(
          t,
          await call('POST', work(`/${id}`), { raw: '{"metadata":{"a":"b"}}', headers }),
          400,
          `patch, ${type}`,
        );
        checkRefusal(
          t,
          await call('POST', work(`/${id}/stop`), { raw: '{"force":true}', headers }),
          400,
          `stop, ${type}`,
        );
      }
      for (const type of ['application/json', 'Application/JSON;charset=utf-8', 'application/merge-patch+json']) {
        const answer = await call('POST', work(`/${id}`), {
          raw: '{"metadata":{}}',
          headers: { 'content-type': type },
        });
        t.equal(answer.status, 200, type);
      }
    });

    test('an id that cannot exist is 404 in a path', async (t) => {
      const impossible = [
        '%00',
        'work_%00',
        'work_%ED%A0%80',
        'work_%ZZ',
        'work_%',
        '%2e%2e%2f',
        'work_%20',
        "work_'",
        'work_',
        '',
      ];
      impossible.push('poll', id.slice(5), `work_${'x'.repeat(65)}`, `work_${'x'.repeat(300)}`, 'x'.repeat(8_000));
      for (const wrong of impossible) {
        const what = wrong.slice(0, 20);
        const post = (path: string) => exchange(url, head(server, 'POST', work(path)));
        if (wrong !== 'poll')
          checkRefusal(t, await exchange(url, head(server, 'GET', work(`/${wrong}`))), 404, `retrieve ${what}`);
        checkRefusal(t, await post(`/${wrong}/ack`), 404, `ack ${what}`);
        checkRefusal(
          t,
          await post(`/${wrong}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`),
          404,
          `heartbeat ${what}`,
        );
        checkRefusal(t, await post(`/${wrong}/stop`), 404, `stop ${what}`);
      }
      for (const wrong of [
        'env_%00',
        '%ED%A0%80',
        'env_%ZZ',
        'env_',
        environment.id.slice(4),
        `env_${'x'.repeat(300)}`,
        'env_x',
      ]) {
        for (const path of [
          `/v1/environments/${wrong}`,
          `/v1/environments/${wrong}/work/poll`,
          `/v1/environments/${wrong}/work/${id}`,
        ]) {
          checkRefusal(t, await call('GET', path, { as: OPERATOR_KEY }), 404, path.slice(0, 60));
        }
        const answer = await call('POST', `/control/v1/environments/${wrong}/work`, {
          as: OPERATOR_KEY,
          body: { data: { type: 'session', id: 's' } },
        });
        checkRefusal(t, answer, 404, `enqueue ${wrong.slice(0, 20)}`);
      }
    });

    test('NUL and unpaired surrogates anywhere else are 400', async (t) => {
      for (const bad of ['\0', '\ud800', 'a\udc00b', '\udc00\ud800']) {
        const what = JSON.stringify(bad);
        const control = `/control/v1/environments/${environment.id}`;
        const bodies: readonly (readonly [string, unknown])[] = [
          [work(`/${id}`), { metadata: { a: bad } }],
          [work(`/${id}`), { metadata: { [bad]: 'a' } }],
          [work(`/${id}`), { metadata: { [bad]: null } }],
          [`${control}/work`, { data: { type: 'session', id: bad } }],
          [`${control}/work`, { data: { type: 'session', id: 'new' }, metadata: { [bad]: bad } }],
          [`${control}/keys`, { name: bad }],
          ['/v1/environments', { name: bad }],
          ['/v1/environments', { name: 'new', description: bad }],
          ['/v1/environments', { name: 'new', metadata: { a: bad } }],
        ];
        for (const [path, body] of bodies) {
          checkRefusal(
            t,
            await call('POST', path, { as: OPERATOR_KEY, body }),
            400,
            `${path} ${JSON.stringify(body)} ${what}`,
          );
        }
      }
      for (const bad of ['%00', 'x%00', '%ED%A0%80', '%ED%B0%80', '%FF', '%ZZ', '%']) {
        const path = `/${id}/heartbeat?expected_last_heartbeat=${bad}`;
        checkRefusal(t, await exchange(url, head(server, 'POST', work(path))), 400, path);
        checkRefusal(t, await exchange(url, head(server, 'GET', work(`?page=${bad}`))), 400, `page ${bad}`);
      }
    });

    test('a conflict tells clients not to retry', async (t) => {
      const stopped = await enqueue('to be stopped');
      await call('POST', work(`/${stopped}/stop`));
      for (const body of [undefined, { force: true }]) {
        checkRefusal(t, await call('POST', work(`/${stopped}/stop`), { body }), 409, `stop ${JSON.stringify(body)}`);
      }
      const body = { name: environment.name };
      checkRefusal(t, await call('POST', '/v1/environments', { as: OPERATOR_KEY, body }), 409, 'a taken name');
    });
  });
}
