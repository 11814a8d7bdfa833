import { inspect } from 'node:util';
import { LIMITS } from '../queue/limits.ts';

/** What is kept of an error: fit to be stored, and not too long. */
export function messageOf(error: unknown): string {
  const text = told(error);
  return Array.from(
    text
      .slice(0, 2 * LIMITS.errorCharacters)
      .toWellFormed()
      .replaceAll('\0', '\uFFFD'),
  )
    .slice(0, LIMITS.errorCharacters)
    .join('');
}

/** Anything may be thrown, also what cannot be written as text. */
function told(error: unknown): string {
  try {
    if (error instanceof Error) return `${error.name}: ${error.message}`;
    return typeof error === 'string' ? error : inspect(error);
  } catch {
    return 'an error that cannot be written as text';
  }
}
