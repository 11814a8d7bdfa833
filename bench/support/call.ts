import { Agent, request } from 'node:http';
import { OPERATOR_KEY } from './servers.ts';

const BATCH = 1_000;
const agent = new Agent({ keepAlive: true, maxSockets: 16 });

/** A call with the servers' API key, where the load generator is too much. Throws on a refusal. */
// biome-ignore lint/suspicious/noExplicitAny: a bench reads what it expects
export function call(url: string, method: string, path: string, body?: unknown): Promise<any> {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const headers = { 'x-api-key': OPERATOR_KEY, ...(sent === undefined ? {} : { 'content-type': 'application/json' }) };
  return new Promise((resolve, reject) => {
    const outgoing = request(`${url}${path}`, { method, headers, agent }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        if ((response.statusCode ?? 0) >= 300) reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`));
        else resolve(text === '' ? undefined : JSON.parse(text));
      });
    });
    outgoing.on('error', reject);
    outgoing.end(sent);
  });
}

/** An environment, and a key for its workers. */
export type Place = { readonly url: string; readonly environmentId: string; readonly key: string };

export async function makePlace(url: string, name = 'bench'): Promise<Place> {
  const { id: environmentId } = await call(url, 'POST', '/v1/environments', { name });
  const { key } = await call(url, 'POST', `/control/v1/environments/${environmentId}/keys`, { name: 'workers' });
  return { url, environmentId, key };
}

let sessions = 0;

/** Puts in so many, each for a session of its own. */
export async function enqueue({ url, environmentId }: Place, count: number): Promise<void> {
  for (let left = count; left > 0; left -= BATCH) {
    const items = Array.from({ length: Math.min(BATCH, left) }, () => ({
      data: { type: 'session', id: `session-${sessions++}` },
    }));
    await call(url, 'POST', `/control/v1/environments/${environmentId}/work/batch`, { items });
  }
}
