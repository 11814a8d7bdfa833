import type { FastifyRequest } from 'fastify';
import type { Database } from '../../db/connect.ts';
import { newestOfSession } from '../../queue/newest-of-session.ts';
import { forbidden, unauthenticated } from '../auth.ts';
import { readPath } from './path.ts';

/** What the application is told about the caller: nothing that was not verified. */
export type Vouched = Readonly<Record<`leasehold-${string}`, string>>;

/**
 * Lets a known caller through to what is theirs, and tells the application who it is. API keys: everything. Sessions tokens: their own
 * session, skills and memory stores. Environment keys: sessions that have an item in their environment, skills and memory stores; another
 * session is 401, as another environment is (contract §2, D). The list of all sessions is for API keys: 403. Refuses also: not_found, a path
 * that could be read in two ways.
 */
export async function vouch({ caller, raw }: FastifyRequest, database: Database): Promise<Vouched> {
  const [resource, sessionId] = readPath(raw.url ?? '');
  if (caller === undefined) throw unauthenticated();
  if (caller.kind === 'api') return { 'leasehold-caller': 'api', 'leasehold-key-id': caller.keyId };

  const isOfSession = resource === 'sessions';
  if (isOfSession && sessionId === undefined) throw forbidden();
  if (caller.kind === 'session') {
    if (isOfSession && sessionId !== caller.sessionId) throw forbidden();
    return { 'leasehold-caller': 'session', ...of(caller) };
  }
  const { keyId, environmentId } = caller;
  const key = { 'leasehold-caller': 'environment', 'leasehold-key-id': keyId } as const;
  if (!isOfSession || sessionId === undefined) return { ...key, 'leasehold-environment-id': environmentId };
  const workId = await newestOfSession(database, environmentId, sessionId);
  if (workId === undefined) throw unauthenticated();
  return { ...key, ...of({ environmentId, sessionId, workId }) };
}

const of = (work: { environmentId: string; sessionId: string; workId: string }) => ({
  'leasehold-environment-id': work.environmentId,
  'leasehold-session-id': headerText(work.sessionId),
  'leasehold-work-id': work.workId,
});

/** Ids of sessions are any text, header fields are not: what is not printable ASCII, and %, is percent-encoded. */
const headerText = (text: string): string => text.replace(/[^\x21-\x24\x26-\x7e]/gu, encodeURIComponent);
