import { createServer, connect as dial, type Socket } from 'node:net';
import type { Test } from 'tap';
import { listenOnLoopback } from './loopback.ts';

export type FrailProxy = {
  readonly url: string;
  /** The request line of each request that came. */
  readonly requests: string[];
  /** How many answers were lost. */
  dropped(): number;
  /** Lets so many of the next requests with such a line be applied, and cuts their connections in place of the answers. */
  drop(line: RegExp, count?: number): void;
  /** Lets no more such requests through: their connections are cut before the server hears of them. */
  block(line: RegExp | undefined): void;
  /** Cuts whatever is open. */
  cut(): void;
};

/** A way to the server that breaks on demand, in the middle of whatever it carries. */
export async function frailProxy(t: Test, upstream: string): Promise<FrailProxy> {
  const { hostname, port } = new URL(upstream);
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let drops: RegExp[] = [];
  let blocked: RegExp | undefined;
  let dropped = 0;
  const keep = (socket: Socket): Socket => {
    sockets.add(socket);
    return socket.on('error', () => {}).on('close', () => sockets.delete(socket));
  };
  const proxy = createServer((client) => {
    keep(client);
    const server = keep(dial(Number(port), hostname));
    let isLost = false;
    client.on('data', (chunk) => {
      const [line] = /^[A-Z]+ \S+(?= HTTP)/.exec(chunk.toString('latin1')) ?? [];
      if (line !== undefined) {
        requests.push(line);
        if (blocked?.test(line)) return void client.destroy();
        const at = drops.findIndex((drop) => drop.test(line));
        isLost = at >= 0;
        drops = drops.toSpliced(at, isLost ? 1 : 0);
      }
      server.write(chunk);
    });
    server.on('data', (chunk) => {
      if (!isLost) return void client.write(chunk);
      dropped++;
      client.destroy();
    });
    client.on('close', () => server.destroy());
    server.on('close', () => client.destroy());
  });
  const proxyPort = await listenOnLoopback(t, proxy);
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  t.teardown(cut);
  return {
    url: `http://127.0.0.1:${proxyPort}`,
    requests,
    dropped: () => dropped,
    drop: (line, count = 1) => {
      drops = [...drops, ...Array.from({ length: count }, () => line)];
    },
    block: (line) => {
      blocked = line;
    },
    cut,
  };
}
