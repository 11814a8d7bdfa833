import { createServer } from 'node:net';

/** The load generator's own limit: whatever is sent is answered with the same bytes, unread. A process of its own. */
const body = JSON.stringify({ id: 'work_V1StGXR8Z5jdHi6BmyTxxxxx', type: 'work', state: 'queued' });
const answer = Buffer.from(
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
);
const server = createServer({ noDelay: true }, (socket) => {
  socket.on('data', () => socket.write(answer));
  socket.on('error', () => socket.destroy());
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  console.log(`listening on http://127.0.0.1:${address.port}`);
});
process.once('SIGTERM', () => process.exit());
