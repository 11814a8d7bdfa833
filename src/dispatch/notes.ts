export type NotesOptions<Note> = {
  /** Each note with how long ago it was last made, by this process's monotonic clock. */
  record(notes: readonly (Note & { readonly ageMs: number })[]): Promise<void>;
  flushIntervalMs: number;
  notesMax: number;
};

/**
 * What this process saw, written together: a request costs no write of its own. One note a key, the latest. Best effort: a
 * failed write is forgotten, never felt by a request; past the bound new keys are not noted.
 */
export function createNotes<Note extends object>({ record, flushIntervalMs, notesMax }: NotesOptions<Note>) {
  const noted = new Map<string, { note: Note; at: number }>();
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();

  return {
    note(key: string, note: Note): void {
      if (noted.size >= notesMax && !noted.has(key)) return;
      noted.set(key, { note, at: performance.now() });
      timer ??= setTimeout(() => void this.flush(), flushIntervalMs);
    },
    /** Ends when all that was noted is written, also what an earlier flush is still writing. */
    flush(): Promise<void> {
      clearTimeout(timer);
      timer = undefined;
      if (noted.size === 0) return writing;
      const now = performance.now();
      const notes = [...noted.values()].map(({ note, at }) => ({ ...note, ageMs: now - at }));
      noted.clear();
      writing = Promise.all([writing, record(notes).catch(() => {})]).then(() => {});
      return writing;
    },
  };
}
