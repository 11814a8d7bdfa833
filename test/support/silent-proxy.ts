import { createServer, connect as dial, type Socket } from 'node:net';
import type { Test } from 'tap';
import { databaseUrl } from './harness.ts';
import { listenOnLoopback } from './loopback.ts';

export type SilentProxy = {
  /** The database's URL through the proxy. */
  readonly url: string;
  /** From now on nothing comes through in either direction, and no connection is ended: a network that lost its state. */
  silence(): void;
  /** How often something was said into the silence. */
  heard(): number;
  /** New connections come through again; those that were silenced stay so. */
  heal(): void;
};

/** A way to the database that can go silent. */
export async function silentProxy(t: Test, upstream = databaseUrl()): Promise<SilentProxy> {
  const { hostname, port } = new URL(upstream);
  const sockets = new Set<Socket>();
  let isSilent = false;
  let heard = 0;
  const proxy = createServer((client) => {
    sockets.add(client.on('error', () => {}));
    if (isSilent) return;
    const server = dial(Number(port), hostname);
    sockets.add(server.on('error', () => {}));
    client.pipe(server).pipe(client);
  });
  const proxyPort = await listenOnLoopback(t, proxy);
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  const url = new URL(upstream);
  url.host = `127.0.0.1:${proxyPort}`;
  return {
    url: url.href,
    silence() {
      isSilent = true;
      for (const socket of sockets)
        socket
          .unpipe()
          .on('data', () => heard++)
          .resume();
    },
    heard: () => heard,
    heal() {
      isSilent = false;
    },
  };
}
