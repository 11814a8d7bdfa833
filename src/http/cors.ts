import type { App } from './app.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Pages of the origins allowed may read its answers. */
    isCrossOrigin?: boolean;
  }
}

/** What some event sources that are no EventSource send. */
const HEADERS = 'authorization, x-api-key, accept, cache-control, last-event-id';
const PREFLIGHT_SECONDS = 600;

/**
 * Lets pages of these origins read what routes marked so answer, refusals included: before anything can refuse. By hand: the plugin for this answers for a whole
 * instance, its hooks after those of ours that refuse, and brings a route for any path.
 */
export function registerCors(app: App, origins: readonly string[]): void {
  if (origins.length === 0) return;
  const allowed = new Set(origins);
  app.addHook('onRequest', ({ routeOptions, headers: { origin } }, reply, done) => {
    if (routeOptions.config.isCrossOrigin === true) {
      reply.header('vary', 'origin'); // also without one: what is kept in between must not serve another page
      if (origin !== undefined && allowed.has(origin)) reply.header('access-control-allow-origin', origin);
    }
    done();
  });
}

/** What a browser asks before a GET with headers of its own. Without origins there is no such method. */
export function allowPreflight(app: App, url: string, origins: readonly string[] = []): void {
  if (origins.length === 0) return;
  app.route({
    method: 'OPTIONS',
    url,
    config: { access: 'anyone', isCrossOrigin: true },
    async handler(_request, reply) {
      return reply
        .code(204)
        .headers({
          'access-control-allow-methods': 'GET',
          'access-control-allow-headers': HEADERS,
          'access-control-max-age': `${PREFLIGHT_SECONDS}`,
        })
        .send();
    },
  });
}
