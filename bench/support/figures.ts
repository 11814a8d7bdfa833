/** Ends of an interval and what lies in its middle. */
export type Spread = { readonly median: number; readonly low: number; readonly high: number };

/** Of what rounds came to. */
export function spread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (q: number) => sorted[Math.floor((sorted.length - 1) * q)] ?? Number.NaN;
  return { median: at(0.5), low: at(0), high: at(1) };
}

/** The value that so many of a hundred do not exceed; ascending. */
export const percentileOf = (sorted: ArrayLike<number>, p: number): number =>
  sorted[Math.ceil((sorted.length * p) / 100) - 1] ?? Number.NaN;

/** p50, p99 and the longest of what took so many ms. */
export function summaryOf(times: readonly number[]): string {
  const sorted = times.toSorted((a, b) => a - b);
  const [p50, p99, max] = [50, 99, 100].map((p) => digits(percentileOf(sorted, p)));
  return `p50 ${p50} p99 ${p99} max ${max} ms`;
}

export const median = (values: readonly number[]): number => spread(values).median;

/** Three digits that count, or all before the point. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value === 0 ? '0' : value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
}

/** The median, and between what it lies. */
export function digitsOf(values: readonly number[]): string {
  const { median, low, high } = spread(values);
  return values.length < 2 ? digits(median) : `${digits(median)} (${digits(low)}–${digits(high)})`;
}
