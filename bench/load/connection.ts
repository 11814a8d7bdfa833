import { connect, type Socket } from 'node:net';

/** A reply's status, and where its body stands in `bytes`; these are read over as soon as this has returned. */
export type OnReply = (status: number, bytes: Buffer, start: number, end: number) => void;

const HEAD_END = Buffer.from('\r\n\r\n');
const CONTENT_LENGTH = Buffer.from('\r\ncontent-length: ');
const NO_CONTENT = 204;
const ZERO = 0x30;
const CARRIAGE_RETURN = 0x0d;
const RECEIVED_BYTES_MAX = 256 * 1_024;

/** One for all: a chunk has been dealt with before the next is read, of whatever socket. */
const received = Buffer.allocUnsafe(RECEIVED_BYTES_MAX);

/**
 * One keep-alive connection that asks one thing after another: HTTP/1.1 with content-length, written and read by hand. Node's own
 * client costs more than the server that is measured. What is broken ends the process.
 */
export class Connection {
  readonly #socket: Socket;
  #onReply: OnReply | undefined;
  /** The beginning of a reply that came in pieces. */
  #begun: Buffer | undefined;
  #isClosed = false;

  private constructor(url: string, onOpen: () => void) {
    const { hostname, port } = new URL(url);
    const onread = { buffer: received, callback: (count: number) => this.#read(count) };
    this.#socket = connect({ host: hostname, port: Number(port), noDelay: true, onread }, onOpen);
    this.#socket.on('error', (error) => {
      if (!this.#isClosed) throw error;
    });
    this.#socket.on('close', () => {
      if (!this.#isClosed) throw new Error('the server closed a connection');
    });
  }

  static open(url: string): Promise<Connection> {
    return new Promise((resolve) => {
      const connection = new Connection(url, () => resolve(connection));
    });
  }

  /** `request`: head and body as they are sent, ASCII. */
  ask(request: string, onReply: OnReply): void {
    this.#onReply = onReply;
    this.#socket.write(request, 'latin1');
  }

  close(): void {
    this.#isClosed = true;
    this.#socket.destroy();
  }

  #read(count: number): true {
    if (this.#isClosed) return true;
    if (this.#begun === undefined) return this.#parse(received, count);
    const whole = Buffer.concat([this.#begun, received.subarray(0, count)]);
    return this.#parse(whole, whole.length);
  }

  #parse(bytes: Buffer, count: number): true {
    const head = bytes.indexOf(HEAD_END);
    if (head < 0 || head >= count) return this.#keep(bytes, count);
    const start = head + HEAD_END.length;
    const status = (at(bytes, 9) * 10 + at(bytes, 10)) * 10 + at(bytes, 11);
    const end = status === NO_CONTENT ? start : start + lengthOf(bytes, head);
    if (end > count) return this.#keep(bytes, count);
    this.#begun = undefined;
    const onReply = this.#onReply;
    this.#onReply = undefined;
    if (end < count || onReply === undefined) throw new Error('more was answered than was asked');
    onReply(status, bytes, start, end);
    return true;
  }

  #keep(bytes: Buffer, count: number): true {
    this.#begun = bytes === received ? Buffer.from(received.subarray(0, count)) : bytes;
    return true;
  }
}

/** Fewer than a server's backlog, or some would be tried again after a second. */
const OPENED_AT_ONCE = 200;

export async function openAll(url: string, count: number): Promise<Connection[]> {
  const connections: Connection[] = [];
  while (connections.length < count) {
    const length = Math.min(OPENED_AT_ONCE, count - connections.length);
    connections.push(...(await Promise.all(Array.from({ length }, () => Connection.open(url)))));
  }
  return connections;
}

const at = (bytes: Buffer, place: number): number => (bytes[place] ?? 0) - ZERO;

function lengthOf(bytes: Buffer, head: number): number {
  const found = bytes.indexOf(CONTENT_LENGTH);
  if (found < 0 || found > head) throw new Error(`no content-length: ${bytes.toString('latin1', 0, head)}`);
  let length = 0;
  for (let place = found + CONTENT_LENGTH.length; bytes[place] !== CARRIAGE_RETURN; place++) {
    length = length * 10 + at(bytes, place);
  }
  return length;
}

const QUOTE = 0x22;

/** The text of a field of a JSON body, where it needs no unescaping; `field` as it stands there: `"id":"`. */
export function textOf(field: Buffer, bytes: Buffer, start: number, end: number): string {
  const found = bytes.indexOf(field, start);
  if (found < 0 || found > end) throw new Error(`no ${field} in ${bytes.toString('latin1', start, end)}`);
  const from = found + field.length;
  return bytes.toString('latin1', from, bytes.indexOf(QUOTE, from));
}
