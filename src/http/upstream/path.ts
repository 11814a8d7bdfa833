import { QueueError } from '../../queue/errors.ts';

/** A path of RFC 3986 in its plainest form: no empty segment, but for a slash at the end. */
const PATH = /^\/v1(?:\/(?:[\w.~!$&'()*+,;=:@-]|%[\da-f]{2})+)+\/?$/i;

/** What some server behind us would read as something else: separators, what is encoded twice, what no text holds. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const AMBIGUOUS = /[/\\%\x00-\x1f\x7f]/;

/** Also with path parameters, which some servers take off first. */
const DOTS = /^\.{0,2}(?:;|$)/;

/**
 * What a path below `/v1` names, decoded, so that what is checked here is what the application sees. Refuses: not_found, for whatever
 * cannot be decoded or may be normalised to another path: dot segments, empty ones, encoded slashes and percent signs.
 */
export function readPath(url: string): readonly string[] {
  const [path = ''] = url.split('?', 1);
  try {
    if (PATH.test(path)) {
      const segments = path.replace(/\/$/, '').split('/').slice(2).map(decodeURIComponent);
      if (!segments.some((segment) => AMBIGUOUS.test(segment) || DOTS.test(segment))) return segments;
    }
  } catch {
    // Percent-encoding that is not UTF-8.
  }
  throw new QueueError(
    'not_found',
    'the path must have plain segments: not empty, no dots alone, no encoded / \\ or %',
  );
}
