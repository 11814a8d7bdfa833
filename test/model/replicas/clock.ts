import type pg from 'pg';

const STANDSTILL_MS = 25;

/** What is before what, for the test: a count of its own steps, which is exact, and the database's clock, as far as it can be told from here. */
export class Clock {
  private ticks = 0;
  private aheadMicros = 0;
  /** The database's clock is known as exactly as that. */
  private blurMicros = 0;

  private readonly awaited = new Set<{ at: number; resolve: () => void }>();

  tick = (): number => {
    this.ticks++;
    for (const one of this.awaited) if (one.at <= this.ticks) one.resolve();
    return this.ticks;
  };

  /** So much later by the ticks: so many calls have begun or ended. Or when nothing more comes, since all wait for whoever waits here. */
  async after(count: number): Promise<void> {
    if (count === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const one = { at: this.ticks + count, resolve };
    this.awaited.add(one);
    const bound = setTimeout(resolve, STANDSTILL_MS);
    await promise;
    clearTimeout(bound);
    this.awaited.delete(one);
  }

  /** The database's instant now, in microseconds: at least, and at most. */
  now(): { readonly least: number; readonly most: number } {
    const about = here() + this.aheadMicros;
    return { least: about - this.blurMicros, most: about + this.blurMicros };
  }

  /** Done for each history: clocks drift. */
  async set(client: pg.Client): Promise<void> {
    const before = here();
    const { rows } = await client.query<{ at: string }>(
      'select (extract(epoch from clock_timestamp()) * 1000000)::bigint as at',
    );
    const after = here();
    this.aheadMicros = Number(rows[0]?.at) - (before + after) / 2;
    this.blurMicros = (after - before) / 2 + 1_000;
  }
}

const here = (): number => (performance.timeOrigin + performance.now()) * 1_000;
