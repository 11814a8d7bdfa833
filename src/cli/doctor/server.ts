import { ControlError } from '../../client/call.ts';
import { createWorkClient } from '../../client/work-client.ts';
import { VERSION } from '../../version.ts';
import type { readAccess } from '../desk.ts';
import { type ClockOffset, clockCheck, offsetOf } from './clock.ts';
import { type Check, fail, ok, saying, skip, warn } from './check.ts';

export type Access = ReturnType<typeof readAccess>;
export type Examined = {
  /** It lets us in, and does work. */
  readonly isOpen: boolean;
  /** Of its clock, from seconds; undefined: not known. */
  readonly clock: ClockOffset | undefined;
};

const ANSWER_MS_MAX = 5_000;

/** Whether it answers, is of this version, is told the same time, reaches its database, and lets us in. */
export async function* examineServer(access: Access): AsyncGenerator<Check, Examined> {
  const shut: Examined = { isOpen: false, clock: undefined };
  const told = access.problems.filter((problem) => !problem.startsWith('LEASEHOLD_API_KEY'));
  if (told.length > 0) {
    yield fail('server', told.join('; '), 'start of the address that the server logs as it starts');
    return shut;
  }
  const startedAt = Date.now();
  const health = await get(access.url, '/healthz').catch((error: unknown) => saying(error));
  if (typeof health === 'string' || !health.isOk) {
    const message = `${access.url} does not answer as a server of ours: ${typeof health === 'string' ? health : health.saying}`;
    yield fail('server', message, 'start one (leasehold serve), or name it by LEASEHOLD_URL or --url');
    return shut;
  }
  const version = String(health.body.version ?? 'unknown');
  if (version === VERSION) yield ok('server', `${access.url} answers, version ${version}`);
  else yield warn('server', `its version is ${version}, ours ${VERSION}`, 'let both be of one version');
  // A Date header has seconds: it was written at half of one, as far as we know.
  const saidAt = Date.parse(health.headers.get('date') ?? '') + 500;
  const clock = Number.isNaN(saidAt) ? undefined : offsetOf(saidAt, startedAt, health.endedAt);
  if (clock === undefined) yield skip('server clock', 'its answers tell no date');
  else yield clockCheck('server clock', clock);

  const ready = await get(access.url, '/readyz').catch((error: unknown) => saying(error));
  if (typeof ready === 'string' || !ready.isOk) {
    const message = typeof ready === 'string' ? ready : ready.saying;
    yield fail('server database', message, "see to the server's DATABASE_URL; its log says more");
    return { isOpen: false, clock };
  }
  yield ok('server database', `reached, its schema is ${ready.body.schema}`);
  const key = await examineKey(access);
  yield key;
  return { isOpen: key.status === 'ok', clock };
}

async function examineKey({ url, apiKey, problems }: Access): Promise<Check> {
  const remedy =
    "an operator's key: that of the server's LEASEHOLD_API_KEY, data/keys.json, or leasehold keys issue --api";
  if (problems.length > 0) return fail('API key', problems.join('; '), remedy);
  try {
    await createWorkClient({ baseUrl: url, apiKey, retriesMax: 1 }).listEnvironments({ limit: 1 });
    return ok('API key', 'lets us in');
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    return fail('API key', saying(error), remedy);
  }
}

/** One answer without a credential. Throws what fetch throws. */
async function get(url: string, path: string) {
  const signal = AbortSignal.timeout(ANSWER_MS_MAX);
  const response = await fetch(`${url.replace(/\/+$/, '')}${path}`, { signal });
  const text = await response.text();
  const endedAt = Date.now();
  const body = read(text);
  const isOk = response.ok && body !== undefined;
  const { headers, status } = response;
  return { isOk, headers, endedAt, body: body ?? {}, saying: `${status} ${text.slice(0, 200)}` };
}

function read(text: string): Record<string, unknown> | undefined {
  try {
    const body: unknown = JSON.parse(text);
    return typeof body === 'object' && body !== null && 'status' in body ? { ...body } : undefined;
  } catch {
    return undefined;
  }
}
