import t from 'tap';
import { completePlace } from '../support/changes.ts';
import { ENGINES, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { callRoute, checkCarries, checkRefusal, exchange, head, ROUTES } from '../support/wire.ts';

const MEDIA_TYPES = [
  'application/json',
  'text/plain',
  'multipart/form-data',
  'a/b/c',
  ';;;',
  'json',
  '',
  ' ',
  undefined,
];
const BODIES = ['', '{', 'null', '[1]', '{"force":1}', '\0\ufeff', 'x'.repeat(70_000)];

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, work, enqueue, database, environment, url } = server;
    let sessions = 0;
    const item = () => enqueue(`session ${sessions++}`);

    for (const length of [{}, { 'content-length': '0' }, { 'transfer-encoding': 'chunked' }]) {
      const what = JSON.stringify(length);
      t.test(`a JSON content type without a body is accepted, ${what}`, async (t) => {
        const id = await item();
        const post = (path: string) =>
          exchange(
            url,
            head(server, 'POST', work(`/${id}${path}`), { 'content-type': 'application/json', ...length }) +
              ('transfer-encoding' in length ? '0\r\n\r\n' : ''),
          );
        t.equal((await post('/ack')).json.state, 'starting');
        t.equal((await post('/heartbeat?expected_last_heartbeat=NO_HEARTBEAT')).json.state, 'active');
        t.equal((await post('/stop')).status, 204);
        t.equal((await rowOf(database, id)).state, 'stopping');
      });
    }

    t.test('no body and no content type can spoil an ack or a heartbeat', async (t) => {
      for (const type of MEDIA_TYPES) {
        for (const body of BODIES) {
          const id = await item();
          const headers: Record<string, string> = { 'content-length': String(Buffer.byteLength(body)) };
          if (type !== undefined) headers['content-type'] = type;
          const post = (path: string) => exchange(url, head(server, 'POST', work(`/${id}${path}`), headers) + body);
          const what = `${type} ${JSON.stringify(body.slice(0, 12))}`;
          t.equal((await post('/ack')).json.state, 'starting', what);
          t.equal((await post('/heartbeat?expected_last_heartbeat=NO_HEARTBEAT')).json.state, 'active', what);
        }
      }
    });

    t.test('unknown parameters, headers and versions change nothing', async (t) => {
      const id = await item();
      const plain = await Promise.all([call('GET', work('?limit=3')), call('GET', work('/stats'))]);
      const queries = [
        'beta=true',
        'beta=1&beta=2',
        'x',
        'x=%00',
        'x=%ZZ',
        'x=%ED%A0%80',
        '__proto__=1&constructor=2',
        '&&=',
      ];
      const headers: Record<string, string>[] = [
        { 'anthropic-version': '1066-10-14' },
        { 'anthropic-beta': 'nonsense, managed-agents-2099' },
        { 'accept-version': '9.x', accept: 'image/png', 'x-unknown': 'ü' },
        { 'content-type': 'text/nonsense' },
        { expect: 'the-unexpected' },
        { upgrade: 'h2c', connection: 'upgrade, close' },
      ];
      for (const [query, header] of [
        ...queries.map((q) => [q, {}] as const),
        ...headers.map((h) => ['y=1', h] as const),
      ]) {
        const what = `${query} ${JSON.stringify(header)}`;
        const get = (path: string) => exchange(url, Buffer.from(head(server, 'GET', work(path), header), 'latin1'));
        t.strictSame((await get(`?limit=3&${query}`)).json, plain[0].json, `list, ${what}`);
        t.strictSame((await get(`/stats?${query}`)).json, plain[1].json, `stats, ${what}`);
        t.equal((await get(`/${id}?${query}`)).json.id, id, `retrieve, ${what}`);
      }
      t.equal((await call('POST', work(`/${id}/ack?beta=true&force=x`))).status, 200);
      const beat = 'heartbeat?beta=true&expected_last_heartbeat=NO_HEARTBEAT&limit=x';
      t.equal((await call('POST', work(`/${id}/${beat}`))).status, 200);
      t.equal((await call('POST', work(`/${id}/stop?beta=true`), { body: { force: true, unknown: 1 } })).status, 204);
    });

    t.test('only the listed methods exist, and the others touch nothing', async (t) => {
      const id = await item();
      const before = await rowOf(database, id);
      const place = { environmentId: environment.id, workId: id };
      const listed = Map.groupBy(ROUTES, (route) => route.path(place).split('?')[0] ?? '');
      const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'QUERY', 'PROPFIND'];
      for (const [path, routes] of listed) {
        for (const method of methods.filter((name) => !routes.some((route) => route.method === name))) {
          const answer = await exchange(url, head(server, method, path, { authorization: `Bearer ${OPERATOR_KEY}` }));
          if (method === 'HEAD') t.equal(answer.status, 404, `HEAD ${path}`);
          else checkRefusal(t, answer, 404, `${method} ${path}`);
        }
      }
      t.strictSame(await rowOf(database, id), before);
    });

    t.test('a path that is no route is 404, whatever is sent there', async (t) => {
      for (const path of [
        '/',
        '/v1',
        '/v1/work',
        work('/poll/'),
        work('/work_x/acknowledge'),
        '//v1',
        '/V1/environments',
      ]) {
        for (const raw of [undefined, '{']) {
          const headers = { 'content-type': raw === undefined ? 'application/json' : 'nonsense' };
          const answer = await call('POST', path, { headers, ...(raw === undefined ? {} : { raw }), as: null });
          checkRefusal(t, answer, 404, `${path} ${raw}`);
        }
      }
    });

    t.test('every answer of success carries a request-id of its own and is not to be stored', async (t) => {
      const ids = new Set<string | null>();
      const workId = await item();
      const place = await completePlace(server, { environmentId: environment.id, workId });
      for (const route of ROUTES) {
        const answer = await callRoute(server, route, place, OPERATOR_KEY);
        t.equal(answer.status, route.success, route.name);
        checkCarries(t, answer, route.name);
        const isEmpty = answer.status === 204;
        t.equal(answer.text === '', isEmpty, `${route.name}: a body or none`);
        if (!isEmpty) t.match(answer.headers.get('content-type'), /^application\/json(;|$)/, `${route.name}: JSON`);
        ids.add(answer.headers.get('request-id'));
      }
      for (const path of ['/healthz', '/readyz']) {
        const answer = await call('GET', path, { as: null });
        t.equal(answer.status, 200, path);
        checkCarries(t, answer, path);
        ids.add(answer.headers.get('request-id'));
      }
      t.equal(ids.size, ROUTES.length + 2);
    });

    t.test('a poll that finds nothing is answered with the JSON body null', async (t) => {
      const empty = await testServer(t, { database });
      const answer = await empty.call('GET', empty.work('/poll'));
      t.equal(answer.status, 200);
      t.equal(answer.text, 'null');
      t.match(answer.headers.get('content-type'), /^application\/json(;|$)/);
    });
  });
}
