/** A note, how often it was made since the last writing, and how long ago last, by this process's monotonic clock. */
export type Noted<Note> = Note & { readonly times: number; readonly ageMs: number };

export type NotesOptions<Note> = {
  record(notes: readonly Noted<Note>[]): Promise<void>;
  flushIntervalMs: number;
  notesMax: number;
};

/**
 * What this process saw, written together: a request costs no write of its own. One note a key, the latest. Best effort: a
 * failed write is forgotten, never felt by a request; past the bound new keys are not noted.
 */
export function createNotes<Note extends object>({ record, flushIntervalMs, notesMax }: NotesOptions<Note>) {
  const noted = new Map<string, { note: Note; times: number; at: number }>();
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();

  return {
    note(key: string, note: Note): void {
      const known = noted.get(key);
      if (noted.size >= notesMax && known === undefined) return;
      noted.set(key, { note, times: (known?.times ?? 0) + 1, at: performance.now() });
      timer ??= setTimeout(() => void this.flush(), flushIntervalMs);
    },
    /** Ends when all that was noted is written, also what an earlier flush is still writing. */
    flush(): Promise<void> {
      clearTimeout(timer);
      timer = undefined;
      if (noted.size === 0) return writing;
      const now = performance.now();
      const notes = [...noted.values()].map(({ note, times, at }) => ({ ...note, times, ageMs: now - at }));
      noted.clear();
      writing = Promise.all([writing, record(notes).catch(() => {})]).then(() => {});
      return writing;
    },
  };
}
