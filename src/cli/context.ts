/** What a command has of its process: a value, so that only the entry reads the environment and handles signals. */
export type Context = {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** To stdout, with its line breaks. */
  readonly print: (text: string) => void;
  /** One line to stderr. */
  readonly tell: (line: string) => void;
  /** All of stdin. */
  readonly readInput: () => Promise<string>;
  /** Aborts by Ctrl-C, which ends the process as ever until this is asked for. */
  readonly interrupted: () => AbortSignal;
};
