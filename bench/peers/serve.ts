/** A queue that is compared with. */
export type Peer = {
  /** Puts in so many jobs, and opens what so many consumers need. */
  prepare(clients: number, jobs: number): Promise<void>;
  /** Runs them, one at a time for each consumer; answers the seconds it took. */
  run(clients: number, jobs: number): Promise<number>;
};

export type PeerCommand = { readonly verb: keyof Peer; readonly clients: number; readonly jobs: number };
export type PeerAnswer = { readonly seconds: number } | { readonly error: string };

export const BATCH = 1_000;

/** A process that runs jobs for the one that started it. */
export function serve(peer: Peer): void {
  const fail = (error: unknown) => {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    process.send?.({ error: text } satisfies PeerAnswer, () => process.exit(1));
  };
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  process.on('disconnect', () => process.exit());
  process.on('message', ({ verb, clients, jobs }: PeerCommand) => {
    peer[verb](clients, jobs).then((seconds) => process.send?.({ seconds: seconds ?? 0 } satisfies PeerAnswer), fail);
  });
}

export function connectionString(): string {
  const [, , given] = process.argv;
  if (given === undefined) throw new Error('which database?');
  return given;
}
