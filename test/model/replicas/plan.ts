/**
 * What a history on two replicas is made of: bursts, one after the other, each of lanes that run at the same time. The plan comes
 * from a seed, what the lanes meet does not. Items are named by their sessions, so that a plan means something whatever came of the steps before.
 */
export type Session = 's1' | 's2' | 's3';
/** Which replica is asked, by its place; after a crash a fresh one stands there. */
export type Which = 0 | 1;

/**
 * What becomes of a call's answer. `lost`: applied, and never heard of. `left`: the client goes away so many turns of the event loop
 * later. In both cases it comes back with the same, to `again`.
 */
export type Fault =
  | { readonly what: 'none' }
  | { readonly what: 'lost'; readonly again: Which }
  | { readonly what: 'left'; readonly again: Which; readonly turns: number };

/** Where the answer to a poll takes its time: before its first byte, or between that and the rest. */
export type Slow = 'before' | 'within';

export type Request = {
  readonly session: Session;
  readonly requestId: string | undefined;
  readonly followUp: boolean;
  readonly maxHandOuts: number | undefined;
  readonly maxAttempts: number | undefined;
};

export type TokenChoice = 'NO_HEARTBEAT' | 'current' | 'replaced' | 'forged';
/** The session's newest hand-out that a client knows of, or the one before. */
type Target = { readonly session: Session; readonly before: boolean };
/** The same at once, so many times, at the replica or at each in turn. */
type Copies = { readonly copies: number; readonly apart: boolean };
/** What a holder says of its item. `again`: what it said before, if anything, once more. */
export type Saying = {
  readonly status: 'succeeded' | 'failed';
  readonly hasResult: boolean;
  readonly isFinal: boolean;
  readonly again: boolean;
};
/** By the token of the hand-out, or by an API key, which needs none. */
type Holder = { readonly isOperator: boolean };

export const LOCKS = ['l1', 'l2'] as const;
export type Lock = (typeof LOCKS)[number];
export type Owner = 'o1' | 'o2' | 'o3';

/** With the item's own token, in place of the environment's key. */
type Credential = { readonly asItem: boolean };

export type Step = { readonly to: Which } & (
  | { readonly do: 'enqueue'; readonly requests: readonly Request[]; readonly fault: Fault }
  /** A worker's run: a poll, and of what it gets the ack, two beats and the end, as far as there are faults to tell. */
  | {
      readonly do: 'work';
      readonly blockMs: number | undefined;
      readonly leavesAfterTurns: number | undefined;
      readonly slow: Slow | undefined;
      readonly faults: readonly Fault[];
      readonly end: 'stop' | 'release' | Saying['status'];
      readonly force: boolean;
      readonly asItem: boolean;
    }
  | ({ readonly do: 'ack'; readonly fault: Fault } & Target & Copies & Credential)
  | ({ readonly do: 'beat'; readonly token: TokenChoice; readonly isRetry: boolean; readonly fault: Fault } & Target &
      Copies &
      Credential)
  | ({ readonly do: 'stop'; readonly force: boolean; readonly isOperator: boolean; readonly fault: Fault } & Target &
      Copies &
      Credential)
  | ({ readonly do: 'release'; readonly delayMs: number; readonly fault: Fault } & Target & Copies & Holder)
  /** Who says it more than once at a time says something else each time, unless all are `alike`. */
  | ({ readonly do: 'report'; readonly alike: boolean; readonly fault: Fault } & Saying & Target & Copies & Holder)
  | ({ readonly do: 'patch' } & Target & Copies)
  | ({ readonly do: 'read' | 'result' } & Target)
  | { readonly do: 'set'; readonly verb: 'ack' | 'beat' | 'stop'; readonly targets: readonly Target[] }
  | ({ readonly do: 'cancel'; readonly session: Session } & Copies)
  | ({
      readonly do: 'lock';
      readonly verb: 'acquire' | 'renew' | 'let go';
      readonly name: Lock;
      readonly owner: Owner;
      readonly ttlSeconds: number;
      /** By the token that its owner had before the last. */
      readonly before: boolean;
      readonly fault: Fault;
    } & Copies)
  | { readonly do: 'expire'; readonly name: Lock }
  | { readonly do: 'sweep' }
  /** Leases run out, and what waits for its time is due. */
  | { readonly do: 'lapse'; readonly session: Session; readonly secondsAgo: number }
  /** Another transaction has the rows of these sessions, until so many calls have begun or ended. */
  | { readonly do: 'hold'; readonly sessions: readonly Session[]; readonly ticks: number }
  /** For as long the answers of the database do not get to the replica. */
  | { readonly do: 'slow'; readonly ticks: number }
  /** It is gone at once, with its connections on both sides and all that it knew. */
  | { readonly do: 'crash'; readonly ticks: number }
  /** The replica's connections to the database end, and it lives on: by the database, or after answers that it did not get any more. */
  | { readonly do: 'kill'; readonly ticks: number; readonly mute: boolean }
  /** An application's transaction and a batch of stops wait for each other. */
  | { readonly do: 'cross'; readonly session: Session }
);
export type Of<What extends Step['do']> = Extract<Step, { readonly do: What }>;
export type Burst = readonly (readonly Step[])[];
export type History = readonly Burst[];
