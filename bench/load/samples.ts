import { percentileOf } from '../support/figures.ts';

/** What calls of one kind took, in ms. */
export type Times = { readonly count: number; readonly p50: number; readonly p99: number; readonly max: number };

const ROOM_FIRST = 1_024;

/** Collects times at next to no cost. */
export class Samples {
  #values = new Float64Array(ROOM_FIRST);
  #count = 0;

  add(value: number): void {
    if (this.#count === this.#values.length) {
      const wider = new Float64Array(this.#count * 2);
      wider.set(this.#values);
      this.#values = wider;
    }
    this.#values[this.#count++] = value;
  }

  /** And starts over. */
  take(): Times {
    const sorted = this.#values.subarray(0, this.#count).toSorted();
    const percentile = (p: number) => percentileOf(sorted, p);
    this.#count = 0;
    return { count: sorted.length, p50: percentile(50), p99: percentile(99), max: percentile(100) };
  }
}
