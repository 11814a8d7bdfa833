import type { Socket } from 'node:net';
import type { App } from './app.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /**
     * From now on answers tell connections to close, and `onDrain` is run. Resolves when no connection is left, at the latest after
     * `graceMs`; until then what comes is served. Who closes the app after it resets nobody.
     */
    drain(graceMs?: number): Promise<void>;
    /** Aborted by `drain`: what would go on for ever ends then. */
    readonly leaving: AbortSignal;
  }
}

const LOOK_MS = 50;
/** An idle connection may be about to be used: it is closed once it has been left alone for this long. */
const IDLE_MS = 500;

export function registerDraining(app: App, onDrain: () => void): void {
  const leaving = new AbortController();
  // Node does not count a connection as idle before its first request: it would hold the end up for the whole grace.
  const unused = new Map<Socket, number>();
  const open = new Set<Socket>();
  app.server.on('connection', (socket) => {
    open.add(socket);
    unused.set(socket, performance.now());
    socket.once('close', () => {
      open.delete(socket);
      unused.delete(socket);
    });
  });
  app.addHook('onRequest', async ({ raw }) => void unused.delete(raw.socket));
  app.addHook('onSend', async (_request, reply) => {
    if (leaving.signal.aborted) reply.header('connection', 'close');
  });
  app.decorate('leaving', leaving.signal);
  app.decorate('drain', async (graceMs = 0) => {
    leaving.abort();
    onDrain();
    const began = performance.now();
    while (open.size > 0 && performance.now() - began < graceMs) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      const before = performance.now() - IDLE_MS;
      for (const [socket, since] of unused) if (since < before) socket.destroy();
      if (began < before) app.server.closeIdleConnections();
    }
    // Who has connected a moment ago is about to ask: it is still answered, while nobody new is let in any more.
    const left = new Set(unused.keys());
    setTimeout(() => {
      for (const socket of left) if (unused.has(socket)) socket.destroy();
    }, IDLE_MS);
  });
}
