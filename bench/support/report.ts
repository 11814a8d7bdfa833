/** One line of the table. */
export type Row = {
  readonly part: string;
  readonly what: string;
  readonly figure: string;
  readonly note?: string;
};

/** What a figure has to reach. */
export type Floor = {
  readonly what: string;
  readonly wanted: string;
  readonly measured: string;
  readonly isReached: boolean;
};

export type Report = { readonly rows: readonly Row[]; readonly floors: readonly Floor[] };

export type Counts = {
  /** Of what is repeated. */
  readonly rounds: number;
  /** Of whatever runs for a time. */
  readonly seconds: number;
  /** Rows in a table that is to be large. */
  readonly rowsMany: number;
  /** Rows of what is only to be considerable. */
  readonly rowsSome: number;
  /** Workers, polls or leases where there are to be many. */
  readonly callersMany: number;
  readonly isQuick: boolean;
};

/** A part of the bench: what it measures with so much of everything. */
export type Part = (counts: Counts) => Promise<Report>;

/** As Markdown that can also be read as it is. */
export function table(heads: readonly string[], lines: readonly (readonly string[])[]): string {
  const widths = heads.map((head, n) => Math.max(head.length, ...lines.map((line) => line[n]?.length ?? 0)));
  const render = (cells: readonly string[]) => `| ${cells.map((cell, n) => cell.padEnd(widths[n] ?? 0)).join(' | ')} |`;
  return [render(heads), `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`, ...lines.map(render)].join(
    '\n',
  );
}

export function renderReport({ rows, floors }: Report): string {
  const all = table(
    ['part', 'what', 'figure', 'note'],
    rows.map(({ part, what, figure, note = '' }) => [part, what, figure, note]),
  );
  if (floors.length === 0) return all;
  const wanted = table(
    ['what', 'wanted', 'measured', 'reached'],
    floors.map(({ what, wanted, measured, isReached }) => [what, wanted, measured, isReached ? 'yes' : '**no**']),
  );
  return `${all}\n\n${wanted}`;
}
