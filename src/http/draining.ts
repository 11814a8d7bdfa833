import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import type { App } from './app.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /**
     * From now on answers tell connections to close, and `onDrain` is run. Until no connection has been left for 200 ms, at most for `graceMs`, what comes is
     * served; then nobody new is let in, and it resolves when what is there has been answered. Without a grace it resolves at once.
     */
    drain(graceMs?: number): Promise<void>;
    /** Aborted by `drain`: what would go on for ever ends then. */
    readonly leaving: AbortSignal;
  }
}

const LOOK_MS = 50;
/** Whose connection an answer has closed may be on its way back: one look at none is not the end, so many are at which none has come. */
const QUIET_LOOKS = 4;
/** An idle connection may be about to be used: it is closed once it has been left alone for this long. */
const IDLE_MS = 500;
/** Of connections without a request, from which on it pays to look for closed ones. */
const UNUSED_MIN = 64;

export function registerDraining(app: App, onDrain: () => void): void {
  const leaving = new AbortController();
  // Node does not count a connection as idle before its first request: it would hold the end up for the whole grace.
  const unused = new Map<Socket, number>();
  // No listener on each socket: beside Node's own for 'close' it makes what a request leaves behind outlive two scavenges, and those take 10 ms then in place of 0.3.
  let forgetAt = UNUSED_MIN;
  const forgetClosed = () => {
    if (unused.size < forgetAt) return;
    for (const socket of unused.keys()) if (socket.destroyed) unused.delete(socket);
    forgetAt = Math.max(2 * unused.size, UNUSED_MIN);
  };
  const connections = () =>
    new Promise<number>((resolve) => app.server.getConnections((_error, count) => resolve(count)));
  /** Connections since the last look. */
  let came = 0;
  app.server.on('connection', (socket) => {
    came++;
    forgetClosed();
    unused.set(socket, performance.now());
  });
  app.addHook('onRequest', ({ raw }, _reply, done) => {
    unused.delete(raw.socket);
    done();
  });
  app.addHook('onSend', (_request, reply, _payload, done) => {
    if (leaving.signal.aborted) reply.header('connection', 'close');
    done();
  });
  app.decorate('leaving', leaving.signal);
  app.decorate('drain', async (graceMs = 0) => {
    leaving.abort();
    onDrain();
    const began = performance.now();
    for (let quiet = 0; quiet < QUIET_LOOKS && performance.now() - began < graceMs; ) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      const before = performance.now() - IDLE_MS;
      for (const [socket, since] of unused) if (since < before) socket.destroy();
      if (began < before) app.server.closeIdleConnections();
      const isLeft = (await connections()) > 0 || came > 0;
      quiet = isLeft ? 0 : quiet + 1;
      came = 0;
    }
    if (graceMs === 0) return;
    // What the system has taken for us is accepted by the end of a turn: whoever is left there when the listener closes is reset.
    await turn();
    const closed = once(app.server, 'close');
    app.server.close();
    const left = [...unused.keys()];
    const late = setTimeout(() => {
      for (const socket of left) if (unused.has(socket)) socket.destroy();
    }, IDLE_MS);
    await closed;
    clearTimeout(late);
  });
}
