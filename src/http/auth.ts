import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Caller, Callers } from '../control/credentials.ts';
import { HttpError } from './errors.ts';

/**
 * Whom a route lets in (contract §2). `operator`: API keys. `environment`: also its own environment keys. `item`: also the
 * item's own sessions token. `holder`: API keys and the item's own sessions token. `member`: API keys, the environment's own keys and the sessions
 * tokens of all its items, while their hand-outs go on. `session`: API keys, the key of the session's environment, and
 * the session's own tokens. `upstream`: every known credential; what is theirs the path tells (`src/http/upstream/vouch.ts`). `anyone`: no
 * credential. Of API keys, those that are read-only get in where nothing is changed: see `isRead`.
 */
export type Access = 'anyone' | 'item' | 'holder' | 'member' | 'environment' | 'session' | 'upstream' | 'operator';

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
    /** A GET that takes something away all the same. */
    takesWork?: boolean;
    /** A POST that read-only keys may send all the same. */
    changesNothing?: boolean;
    /** A ticket in the query will do. */
    takesTickets?: boolean;
  }
  interface FastifyRequest {
    caller: Caller | undefined;
    /** Of the ticket that it came with, which was good then: the hash of the key that it stands for. What goes on is held to that key. */
    ticketKeyHash: string | undefined;
  }
}

const BEARER = /^bearer +(\S+) *$/i;

/** Checks each request before its body is read. A route that does not say whom it lets in cannot be added. */
export function registerAuth(app: FastifyInstance, callers: Callers): void {
  app.decorateRequest('caller', undefined);
  app.decorateRequest('ticketKeyHash', undefined);
  app.addHook('onRoute', (route) => {
    if (route.config?.access === undefined)
      throw new Error(`${route.method} ${route.url} does not say whom it lets in`);
  });
  app.addHook('onRequest', async (request) => {
    const { access } = request.routeOptions.config;
    if (access === undefined || access === 'anyone') return; // undefined: no such route
    request.caller = await authorise(request, access, callers);
  });
}

/** Refuses: unauthenticated, forbidden. */
export async function authorise(request: FastifyRequest, access: Access, callers: Callers): Promise<Caller> {
  const caller = await identify(request, callers);
  if (caller === undefined) throw unauthenticated();
  if (caller.kind === 'api') {
    if (caller.role === 'read_only' && !isRead(request)) throw forbidden();
    return caller;
  }
  if (access === 'upstream') return caller;
  const params = request.params as Record<string, string | undefined>;
  const { environment_id: environmentId, work_id: workId, session_id: sessionId } = params;
  // Work may be enqueued for any text: a session is its own environment's.
  const home =
    access === 'session' && sessionId !== undefined ? await callers.environmentOfSession(sessionId) : undefined;
  const isElsewhere = home !== undefined && home !== caller.environmentId;
  if (caller.kind === 'session') {
    if (access === 'session' && caller.sessionId === sessionId && !isElsewhere) return caller;
    if (access === 'member' && caller.environmentId === environmentId && (await callers.isHolding(caller)))
      return caller;
    const isOwnItem = caller.environmentId === environmentId && caller.workId === workId;
    if ((access === 'item' || access === 'holder') && isOwnItem) return caller;
    throw forbidden();
  }
  // Not for this environment: no different from unknown (contract §2, D).
  if (isElsewhere) throw unauthenticated();
  if (environmentId !== undefined && caller.environmentId !== environmentId) throw unauthenticated();
  if (access === 'operator' || access === 'holder') throw forbidden();
  return caller;
}

/** By the method, so that a new route that changes something is closed to read-only keys without a word about it. */
const isRead = ({ method, routeOptions }: FastifyRequest): boolean =>
  method === 'GET' || method === 'HEAD'
    ? routeOptions.config.takesWork !== true
    : routeOptions.config.changesNothing === true;

/** The first known credential of those presented: some clients send a standing x-api-key beside their bearer token. */
async function identify(request: FastifyRequest, callers: Callers): Promise<Caller | undefined> {
  const { headers, routeOptions } = request;
  const presented = [BEARER.exec(headers.authorization ?? '')?.[1], headers['x-api-key']];
  for (const credential of presented) {
    if (typeof credential !== 'string' || credential === '') continue;
    const caller = await callers.identify(credential);
    if (caller !== undefined) return caller;
  }
  return routeOptions.config.takesTickets === true ? byTicket(request, callers) : undefined;
}

async function byTicket(request: FastifyRequest, callers: Callers): Promise<Caller | undefined> {
  const { ticket } = request.query as Record<string, unknown>;
  const { environment_id: environmentId } = request.params as Record<string, string | undefined>;
  if (typeof ticket !== 'string' || environmentId === undefined) return undefined;
  request.ticketKeyHash ??= await callers.redeemTicket(ticket, environmentId);
  return request.ticketKeyHash === undefined ? undefined : callers.identifyByHash(request.ticketKeyHash);
}

export const forbidden = () => new HttpError('forbidden', 'this credential does not authorise this call');

export const unauthenticated = () =>
  new HttpError('unauthenticated', 'the credential is missing, unknown, expired, revoked or for another environment');
