import { createHash } from 'node:crypto';

/** The hash of a JSON value, the same in whatever order its keys come. Not recursive: a body may nest as it likes. */
export function hashCanonically(root: unknown): string {
  const parts: string[] = [];
  const left: ({ readonly text: string } | { readonly value: unknown })[] = [{ value: root }];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    if ('text' in next) {
      parts.push(next.text);
      continue;
    }
    const { value } = next;
    if (typeof value !== 'object' || value === null) {
      parts.push(JSON.stringify(value) ?? 'null', ',');
      continue;
    }
    parts.push(Array.isArray(value) ? '[' : '{');
    left.push({ text: '],' });
    for (const [key, inner] of Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1))) {
      left.push({ value: inner }, { text: `${JSON.stringify(key)}:` });
    }
  }
  return createHash('sha256').update(parts.join('')).digest('base64url');
}
