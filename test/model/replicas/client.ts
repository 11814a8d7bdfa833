import { type Agent, request } from 'node:http';
import { turn } from '../../support/gates.ts';
import type { Body, Outcome } from './calls.ts';

export type Sent = {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'PUT';
  readonly path: string;
  readonly as: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
  /** The client breaks the connection so many turns later, unless it has its answer by then. */
  readonly leavesAfterTurns?: number | undefined;
  /** Told of the port that it left from: what was sent may still be on its way. */
  readonly onLeft?: (port: number) => void;
};

/** Far longer than any statement may take: whoever hears nothing until then has been forgotten. */
const ANSWER_MS_MAX = 20_000;

/** One request over real HTTP, whatever becomes of its connection. */
export async function send(url: string, agent: Agent, sent: Sent): Promise<Outcome> {
  const { method, path, as, body, leavesAfterTurns } = sent;
  const text = body === undefined ? '' : JSON.stringify(body);
  const headers = {
    authorization: `Bearer ${as}`,
    ...(text === '' ? {} : { 'content-type': 'application/json', 'content-length': `${Buffer.byteLength(text)}` }),
    ...sent.headers,
  };
  let hasLeft = false;
  const outgoing = request(`${url}${path}`, { method, headers, agent });
  const outcome = new Promise<Outcome>((resolve, reject) => {
    const silence = setTimeout(
      () => reject(new Error(`${method} ${path} was not answered in ${ANSWER_MS_MAX} ms`)),
      ANSWER_MS_MAX,
    );
    const end = (come: Outcome) => {
      clearTimeout(silence);
      resolve(come);
    };
    const broken = () => end({ kind: 'unknown', why: hasLeft ? 'left' : 'broken' });
    outgoing.on('error', broken);
    outgoing.on('response', (response) => {
      let answer = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        answer += chunk;
      });
      response.on('error', broken);
      response.on('close', () => {
        if (!response.complete) return broken();
        const { statusCode: status = 0 } = response;
        // Whether a failed statement was applied, its 503 does not say.
        if (status === 503) return end({ kind: 'unknown', why: '503' });
        end({ kind: 'answered', status, body: answer === '' ? null : (JSON.parse(answer) as Body) });
      });
    });
  });
  outgoing.end(text);
  if (leavesAfterTurns !== undefined) {
    const isAnswered = outcome.then(() => true);
    for (let left = leavesAfterTurns; left > 0; left--) await Promise.race([isAnswered, turn()]);
    hasLeft = true;
    const { socket } = outgoing;
    const isSent = !outgoing.destroyed && socket !== null && !socket.connecting && !socket.destroyed;
    if (isSent && socket.localPort !== undefined) sent.onLeft?.(socket.localPort);
    outgoing.destroy();
  }
  return outcome;
}
