import { createServer, connect as dial, type Socket } from 'node:net';
import { databaseUrl } from '../../support/harness.ts';

/** A way to the database that can be cut for good. */
export async function wayToDatabase(name: string) {
  const target = new URL(databaseUrl());
  const sockets = new Set<Socket>();
  const pairs = new Set<{ client: Socket; server: Socket; isMute: boolean }>();
  let isDelaying = false;
  let isCut = false;
  const keep = (socket: Socket): Socket => {
    sockets.add(socket);
    return socket
      .setNoDelay(true)
      .on('error', () => {})
      .on('close', () => sockets.delete(socket));
  };
  const proxy = createServer((client) => {
    keep(client);
    if (isCut) return void client.destroy();
    const server = keep(dial(Number(target.port || 5432), target.hostname));
    client.pipe(server).pipe(client);
    const pair = { client, server, isMute: false };
    pairs.add(pair);
    client.on('close', () => {
      pairs.delete(pair);
      server.destroy();
    });
    server.on('close', () => client.destroy());
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const address = proxy.address();
  const url = new URL(target);
  if (address !== null && typeof address !== 'string') url.host = `127.0.0.1:${address.port}`;
  url.searchParams.set('application_name', name); // so that the log tells who made a version
  url.searchParams.set('options', '-c deadlock_timeout=100ms');
  const destroyAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  const cut = () => {
    isCut = true;
    destroyAll();
  };
  return {
    url: url.href,
    cut,
    /** The database's answers come after that. */
    async delay(until: Promise<void>): Promise<void> {
      if (isDelaying) return;
      isDelaying = true;
      const delayed = [...pairs].filter(({ isMute }) => !isMute);
      for (const { client, server } of delayed) server.unpipe(client).pause();
      await until;
      for (const { client, server, isMute } of delayed) if (!isMute) server.pipe(client);
      isDelaying = false;
    },
    /** What is on its way to the database gets there, and its answers get nowhere; then the connections break. */
    async lose(until: Promise<void>): Promise<void> {
      for (const pair of pairs) {
        pair.isMute = true;
        pair.server.unpipe(pair.client).resume();
      }
      await until;
      destroyAll();
    },
    close: () => {
      cut();
      return new Promise((resolve) => proxy.close(resolve));
    },
  };
}
