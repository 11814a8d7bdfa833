import fastify from 'fastify';
import t from 'tap';
import type { Caller, Callers } from '../src/control/credentials.ts';
import { type Access, registerAuth } from '../src/http/auth.ts';
import { sendError } from '../src/http/errors.ts';

const api = { kind: 'api', keyId: 'key_1', keyName: 'api', keyHash: 'hash 1' } as const;
const workers = { keyId: 'key_2', keyName: 'workers', keyHash: 'hash 2', minQueuedAgeMs: 0 };
const environment = { kind: 'environment', ...workers } as const;

/** By the credentials that the test calls with. */
const CALLERS: Readonly<Record<string, Caller>> = {
  operator: { ...api, role: 'operator' },
  read_only: { ...api, role: 'read_only' },
  key: { ...environment, environmentId: 'env_1' },
  'other-key': { ...environment, environmentId: 'env_2' },
  token: { kind: 'session', environmentId: 'env_1', workId: 'work_1', sessionId: 'session_1', tokenHash: 'one' },
  'other-token': {
    kind: 'session',
    environmentId: 'env_1',
    workId: 'work_2',
    sessionId: 'session_2',
    tokenHash: 'two',
  },
};

/** Whom a GET of each access lets in, in the order of the callers above. */
const VERDICTS: Readonly<Record<Access, readonly number[]>> = {
  anyone: [200, 200, 200, 200, 200, 200],
  item: [200, 200, 200, 401, 200, 403],
  holder: [200, 200, 403, 401, 200, 403],
  member: [200, 200, 200, 401, 200, 200],
  environment: [200, 200, 200, 401, 403, 403],
  session: [200, 200, 200, 401, 200, 403],
  upstream: [200, 200, 200, 200, 200, 200], // the path tells, see test/upstream/
  operator: [200, 200, 403, 401, 403, 403],
};

function build() {
  const callers = {
    identify: async (credential: string) => CALLERS[credential],
    environmentOfSession: async () => 'env_1',
    isHolding: async () => true,
  } as Partial<Callers> as Callers;
  const app = fastify({ exposeHeadRoutes: false });
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  registerAuth(app, callers);
  app.after(() => {
    for (const access of Object.keys(VERDICTS) as Access[]) {
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
        const url = `/${access}/:environment_id/:work_id/:session_id`;
        app.route({ method, url, config: { access }, handler: async () => ({}) });
      }
      const harmless = `/harmless/${access}/:environment_id/:work_id/:session_id`;
      app.route({ method: 'POST', url: harmless, config: { access, changesNothing: true }, handler: async () => ({}) });
      const url = `/takes/${access}/:environment_id/:work_id/:session_id`;
      app.route({ method: 'GET', url, config: { access, takesWork: true }, handler: async () => ({}) });
    }
  });
  const status = async (method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', path: string, key: string) =>
    (await app.inject({ method, url: `${path}/env_1/work_1/session_1`, headers: { 'x-api-key': key } })).statusCode;
  return { status };
}

t.test('each access lets in whom it names, and nobody else', async (t) => {
  const { status } = build();
  for (const [access, verdicts] of Object.entries(VERDICTS)) {
    const seen = await Promise.all(Object.keys(CALLERS).map((key) => status('GET', `/${access}`, key)));
    t.strictSame(seen, verdicts, access);
    t.equal(await status('GET', `/${access}`, 'unknown'), access === 'anyone' ? 200 : 401, `${access}, unknown`);
  }
});

t.test('a read-only key gets in where nothing is changed or taken, whatever route is added', async (t) => {
  const { status } = build();
  for (const access of Object.keys(VERDICTS).filter((name) => name !== 'anyone')) {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const) {
      t.equal(await status(method, `/${access}`, 'read_only'), 403, `${method} ${access}`);
      t.equal(await status(method, `/${access}`, 'operator'), 200, `${method} ${access} for an operator`);
    }
    t.equal(await status('GET', `/takes/${access}`, 'read_only'), 403, `a GET that takes work, ${access}`);
    t.equal(await status('GET', `/takes/${access}`, 'operator'), 200);
    t.equal(await status('POST', `/harmless/${access}`, 'read_only'), 200, `a POST that changes nothing, ${access}`);
  }
});

t.test('a route that does not say whom it lets in cannot be added', (t) => {
  const app = fastify();
  registerAuth(app, {} as Callers);
  t.throws(() => app.get('/forgotten', async () => ({})), { message: /GET \/forgotten does not say whom it lets in/ });
  t.end();
});
