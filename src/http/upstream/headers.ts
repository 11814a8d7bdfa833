import type { IncomingHttpHeaders } from 'node:http';

/** For one connection only (RFC 9110 §7.6.1); `expect` was answered by this server. */
const HOP_BY_HOP = [
  'connection',
  'expect',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** By which some frameworks take another path or method than the one that was checked. */
const REWRITING = ['x-original-url', 'x-rewrite-url', 'x-http-method', 'x-http-method-override', 'x-method-override'];

/** Credentials of this server do not leave it, and `request-id` is ours to say. */
const OURS = new Set([...HOP_BY_HOP, ...REWRITING, 'authorization', 'x-api-key', 'request-id']);

/** As the many applications read a name that know headers as variables only: there `_` and `.` are `-`, too. */
const asRead = (name: string): string => name.toLowerCase().replace(/[^a-z\d]/g, '-');

/** What the caller sent that is the application's to see. `leasehold-…` only this server says. */
export const fromCaller = (headers: IncomingHttpHeaders): IncomingHttpHeaders =>
  pick(headers, (name) => !OURS.has(asRead(name)) && !asRead(name).startsWith('leasehold-'));

/** What the application answered that is the caller's to see: `request-id` stays the one of our logs (contract §1). */
export function fromApplication(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const listed = `${headers.connection ?? ''}`.toLowerCase().split(/[\s,]+/);
  return pick(headers, (name) => ![...HOP_BY_HOP, ...listed, 'request-id'].includes(name));
}

const pick = (headers: IncomingHttpHeaders, isKept: (name: string) => boolean): IncomingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => isKept(name)));
