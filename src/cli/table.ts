export type Cell = string | number | null | undefined;

const GAP = '  ';

/** Columns under their headings, as wide as their widest cell; what is not there is a dash. */
export function table(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const lines = [headings, ...rows].map((row) => row.map(textOf));
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => width(line[column] ?? ''))));
  return lines
    .map(
      (line) =>
        `${line
          .map((cell, column) => pad(cell, widths[column] ?? 0))
          .join(GAP)
          .trimEnd()}\n`,
    )
    .join('');
}

/** One thing, a field in a line. */
export function record(fields: Readonly<Record<string, Cell>>): string {
  const names = Object.keys(fields);
  const widest = Math.max(...names.map(width));
  return names.map((name) => `${pad(name, widest)}${GAP}${textOf(fields[name])}\n`).join('');
}

/** Instants to the second: the microseconds are for programs. */
export const instant = (text: string | null): string | null => text?.replace(/\.\d+Z$/, 'Z') ?? null;

/** `key=value`, as it is given. */
export const pairs = (metadata: Readonly<Record<string, string>>): string =>
  Object.entries(metadata)
    .map(([key, value]) => `${key}=${value}`)
    .join(' ');

/**
 * Text of somebody else's as a terminal may have it: what could move the cursor, colour, or turn the line round is written as an escape.
 */
export const visible = (text: string): string =>
  text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);

/** A value as JSON, for a person: what could act on the terminal is written as JSON's own escape. */
export const json = (value: unknown): string =>
  JSON.stringify(value, null, 2).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    character === '\n' ? character : character.replace(/./gs, escaped),
  );

const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

const textOf = (cell: Cell): string => (cell === null || cell === undefined || cell === '' ? '-' : visible(`${cell}`));
const width = (text: string): number => [...text].length;
const pad = (text: string, to: number): string => text + ' '.repeat(to - width(text));
