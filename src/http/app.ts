import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import fastify, { type FastifyBaseLogger, type FastifyInstance, LogController, type RawServerDefault } from 'fastify';
import type { Callers } from '../control/credentials.ts';
import type { Queue } from '../create-queue.ts';
import type { Database } from '../db/connect.ts';
import { QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import { LIMITS } from '../queue/limits.ts';
import { readHeads, tailEvents } from '../sessions/read-events.ts';
import { createStreams, type Streams, type StreamsOptions } from '../sessions/streams.ts';
import { Environment } from '../wire/control.ts';
import { ErrorEnvelope } from '../wire/errors.ts';
import { Key } from '../wire/keys.ts';
import { Lock } from '../wire/locks.ts';
import { WorkDetails } from '../wire/operations.ts';
import { SessionEvent } from '../wire/session-events.ts';
import { Session } from '../wire/sessions.ts';
import { EnvironmentSettings } from '../wire/settings.ts';
import { Work } from '../wire/work.ts';
import { registerAuth } from './auth.ts';
import { BODY_BYTES_MAX, registerBodyParser } from './body.ts';
import { answerBrokenHttp } from './broken-http.ts';
import { registerCors } from './cors.ts';
import { registerDraining } from './draining.ts';
import { sendError } from './errors.ts';
import { REQUESTS_PER_SECOND_DEFAULT, registerRateLimit } from './rate-limit.ts';
import { countRefusals } from './refusals.ts';
import { registerRoutes } from './routes/index.ts';
import { querystringParser, validatorCompiler } from './validation.ts';
import { createWakeStreams, type WakeStreams } from './wake-streams.ts';

export type AppOptions = {
  readonly queue: Queue;
  readonly database: Database;
  readonly callers: Callers;
  /** `api_base_url` in `secret`. */
  readonly publicUrl: () => string;
  /** The application that owns sessions, skills and memory stores; undefined: this server answers for sessions itself. */
  readonly sessionsUpstreamUrl?: string | undefined;
  /** Whose pages may read event streams of environments; default none. */
  readonly corsOrigins?: readonly string[];
  readonly logger?: FastifyBaseLogger;
  /** Of event streams, of sessions and of environments each; by default 10,000, looked after each second. */
  readonly streaming?: Pick<StreamsOptions, 'tickMs' | 'streamsMax'>;
  /** Of one caller; 0: any number. Default 2000. */
  readonly requestsPerSecondMax?: number;
  /** Figures are answered again for this long; default 1000. */
  readonly statsKeptMs?: number;
  /** Called with the instance before the routes are added: the OpenAPI generator listens there. */
  readonly beforeRoutes?: (app: App) => void;
};

/** What routes are made of. */
export type RouteOptions = AppOptions & { readonly streams: Streams; readonly wakeStreams: WakeStreams };

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

declare module 'fastify' {
  interface FastifyInstance {
    /** How many event streams are open, of sessions and of environments. */
    openStreams(): number;
  }
}

/** The HTTP server, not yet listening. Dependencies come in, nothing is looked up (design §2). */
export function buildApp(options: AppOptions): App {
  const app: App = fastify({
    ...(options.logger === undefined ? {} : { loggerInstance: options.logger }),
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => mintId('req'),
    bodyLimit: BODY_BYTES_MAX,
    return503OnClosing: false,
    // For a request to arrive whole, 32 MiB of events on a slow line; a waiting poll has arrived. What is passed on may be larger.
    requestTimeout: options.sessionsUpstreamUrl === undefined ? 120_000 : 600_000,
    keepAliveTimeout: 130_000, // longer than the fronts that reuse connections (Caddy: 2 minutes), or they answer 502
    exposeHeadRoutes: false,
    http: { requireHostHeader: false }, // Node would answer without the envelope
    routerOptions: { maxParamLength: 2 * LIMITS.lockNameCharacters, querystringParser },
    clientErrorHandler: answerBrokenHttp,
    frameworkErrors: (error, request, reply) => sendError(error, request, reply),
  }).withTypeProvider<TypeBoxTypeProvider>();

  const { database, queue } = options;
  const streams = createStreams({
    readHeads: (ids) => readHeads(database, ids),
    tailEvents: (id, afterSeq) => tailEvents(database, id, afterSeq),
    listen: queue.listen,
    isListening: queue.isListening,
    ...options.streaming,
  });
  const wakeStreams = createWakeStreams({ listen: queue.listen, onHint: queue.onHint, ...options.streaming });
  const closeStreams = () => {
    streams.close();
    wakeStreams.close();
  };
  registerDraining(app, closeStreams);
  app.decorate('openStreams', () => streams.size() + wakeStreams.size());
  app.setValidatorCompiler(validatorCompiler);
  app.addSchema(Work);
  app.addSchema(WorkDetails);
  app.addSchema(Environment);
  app.addSchema(EnvironmentSettings);
  app.addSchema(Key);
  app.addSchema(Lock);
  app.addSchema(Session);
  app.addSchema(SessionEvent);
  app.addSchema(ErrorEnvelope);
  // Hooks that wait for nothing take a callback, not a promise each.
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('request-id', request.id).header('cache-control', 'no-store');
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    const { method, routeOptions } = request;
    request.log.debug({ method, route: routeOptions.url, status: reply.statusCode, ms: reply.elapsedTime }, 'answered');
    done();
  });
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  // Before a body is looked at, or an odd one would be refused for what it is.
  app.addHook('onRequest', (request, _reply, done) => {
    done(request.is404 ? new QueueError('not_found', 'no such route') : undefined);
  });
  // An expectation that Node does not know is a header like any other: ignored, not refused with its bare 417.
  app.server.on('checkExpectation', (request, response) => app.routing(request, response));

  registerBodyParser(app);
  registerCors(app, options.corsOrigins ?? []);
  registerAuth(app, options.callers);
  registerRateLimit(app, options.requestsPerSecondMax ?? REQUESTS_PER_SECOND_DEFAULT);
  countRefusals(app, queue);
  options.beforeRoutes?.(app);
  app.addHook('preClose', async () => closeStreams()); // whoever closes without draining
  app.after(() => registerRoutes(app, { ...options, streams, wakeStreams }));
  return app;
}
