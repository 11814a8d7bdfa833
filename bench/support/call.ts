import { OPERATOR_KEY } from './servers.ts';

const BATCH = 1_000;

/** A call outside of what is measured. Throws on a refusal. */
// biome-ignore lint/suspicious/noExplicitAny: a bench reads what it expects
export async function call(url: string, method: string, path: string, body?: unknown): Promise<any> {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { 'x-api-key': OPERATOR_KEY, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === '' ? undefined : JSON.parse(text);
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
