import type { Server } from 'node:net';
import type { Test } from 'tap';

/** Lets a server of the test's own listen on the loopback; closed at the end, with what is open. Its port. */
export async function listenOnLoopback(
  t: Test,
  server: Server & { closeAllConnections?: () => void },
): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections?.();
    return new Promise((resolve) => server.close(resolve));
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}
