/** Where frames of server-sent events go: a client that reads at its own pace. */
export type Sink = {
  /** False: it is full, until it has drained. */
  write(frame: string): boolean;
  /** What was written and has not left this process. */
  bytesBehind(): number;
  /** After the last frame. */
  end(): void;
  /** At once. */
  cut(): void;
  /** Whether its credential is still good. */
  isAllowed(): Promise<boolean>;
};

export const frame = (type: string, json: string): string => `event: ${type}\ndata: ${json}\n\n`;
