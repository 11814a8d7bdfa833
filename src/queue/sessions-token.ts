import { hashSecret } from './ids.ts';

/** The token names its work id, so that checking it needs no index of hashes: a primary key finds the row. */
const SESSIONS_TOKEN = /^lhs_(work_[A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{43})$/;

/** What the holder of a hand-out shows (contract §6). */
export const sessionsToken = (workId: string, secret: string): string => `lhs_${workId}.${secret}`;

/** The work id a sessions token claims to be for, and the hash that proves it; undefined for any other text. */
export function parseSessionsToken(token: string): { workId: string; hash: string } | undefined {
  const [, workId, secret] = SESSIONS_TOKEN.exec(token) ?? [];
  return workId === undefined || secret === undefined ? undefined : { workId, hash: hashSecret(secret) };
}
