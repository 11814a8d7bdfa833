import { connect, type Socket } from 'node:net';

export type Reply = { readonly status: number; readonly body: string };

/**
 * One keep-alive connection that asks one thing after another: HTTP/1.1 with content-length, written and read by hand. Node's own client costs more
 * than the server that is measured.
 */
export class Connection {
  readonly #socket: Socket;
  readonly #host: string;
  #settle: { resolve(reply: Reply): void; reject(error: Error): void } | undefined;
  #received = '';

  constructor(url: string) {
    const { hostname, port, host } = new URL(url);
    this.#host = host;
    this.#socket = connect({ host: hostname, port: Number(port), noDelay: true });
    this.#socket.setEncoding('latin1');
    this.#socket.on('data', (chunk: string) => this.#read(chunk));
    this.#socket.on('error', (error) => this.#settle?.reject(error));
    this.#socket.on('close', () => this.#settle?.reject(new Error('the connection was closed')));
  }

  ask(method: string, path: string, key: string, body?: string): Promise<Reply> {
    const head = `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\nx-api-key: ${key}\r\n`;
    const rest =
      body === undefined ? '\r\n' : `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    return new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
      this.#socket.write(method === 'POST' && body === undefined ? `${head}content-length: 0\r\n\r\n` : head + rest);
    });
  }

  #read(chunk: string): void {
    this.#received += chunk;
    const end = this.#received.indexOf('\r\n\r\n');
    if (end < 0) return;
    const status = Number(this.#received.slice(9, 12));
    const length =
      status === 204 ? 0 : Number(/\r\ncontent-length: (\d+)/i.exec(this.#received.slice(0, end + 2))?.[1]);
    if (Number.isNaN(length)) throw new Error(`no content-length: ${this.#received.slice(0, end)}`);
    if (this.#received.length < end + 4 + length) return;
    const body = this.#received.slice(end + 4, end + 4 + length);
    this.#received = this.#received.slice(end + 4 + length);
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.resolve({ status, body });
  }

  close(): void {
    this.#settle = undefined;
    this.#socket.destroy();
  }
}
