import type { Queue } from '../create-queue.ts';
import type { Refusal } from '../queue/refusals.ts';
import type { App } from './app.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Answers of this route, by their status, that are counted against the environment in the path. */
    refusals?: Readonly<Record<number, Refusal>>;
  }
}

/** Counts what workers are refused: why work does not move is often there (see `diagnose`). */
export function countRefusals(app: App, queue: Queue): void {
  app.addHook('onSend', ({ params, routeOptions }, reply, _payload, done) => {
    const refusal = routeOptions.config.refusals?.[reply.statusCode];
    const { environment_id: environmentId } = params as Record<string, string | undefined>;
    if (refusal !== undefined && environmentId !== undefined) queue.noteRefusal(environmentId, refusal);
    done();
  });
}
