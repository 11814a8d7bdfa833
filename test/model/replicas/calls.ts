import type { WorkState } from '../../../src/queue/items.ts';
import type { Request as Enqueued } from './plan.ts';

/** What bodies on the wire have, as far as this test reads them. */
export type Body = {
  readonly id?: string;
  readonly state?: WorkState;
  readonly secret?: string | null;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly acknowledged_at?: string | null;
  readonly started_at?: string | null;
  readonly latest_heartbeat_at?: string | null;
  readonly stop_requested_at?: string | null;
  readonly stopped_at?: string | null;
  readonly last_heartbeat?: string | null;
  readonly lease_extended?: boolean;
  readonly ttl_seconds?: number;
  readonly status?: string;
  readonly result?: unknown;
  /** Of a lock. */
  readonly token?: number;
  readonly owner?: string;
  readonly acquired_at?: string;
  readonly expires_at?: string;
  readonly released?: boolean;
  /** Of an item: its session. Of a batch: what was enqueued, each; of a cancel: what was stopped. */
  readonly data?: { readonly id?: string } | readonly Listed[];
  readonly hand_outs?: readonly {
    readonly work_id: string;
    readonly worker_id: string | null;
    readonly outcome: string | null;
  }[];
  readonly error?: {
    readonly message: string;
    readonly details?: {
      readonly error_code?: string;
      readonly current_state?: { state: WorkState; last_heartbeat: string | null };
      readonly expires_at?: string;
    };
  };
} | null;

export type Listed = { readonly id?: string; readonly created?: boolean; readonly work?: Body };

export const listOf = (body: Body): readonly Listed[] | undefined =>
  Array.isArray(body?.data) ? body.data : undefined;

export const sessionOf = (body: Body): string | undefined =>
  body?.data !== undefined && 'id' in body.data ? body.data.id : undefined;

export type Outcome =
  | { readonly kind: 'answered'; readonly status: number; readonly body: Body }
  /** Applied or not, nobody can say. */
  | { readonly kind: 'unknown'; readonly why: 'left' | 'broken' | '503' };

export type Asked =
  | { readonly verb: 'enqueue'; readonly requests: readonly Enqueued[] }
  /** Each poll has a worker id of its own: the row of a hand-out tells which poll it was for. */
  | { readonly verb: 'poll'; readonly workerId: string; readonly blockMs: number | undefined }
  | { readonly verb: 'ack' | 'read'; readonly id: string }
  | { readonly verb: 'result'; readonly id: string }
  | { readonly verb: 'beat'; readonly id: string; readonly expected: string; readonly isRetry: boolean }
  | { readonly verb: 'stop'; readonly id: string; readonly force: boolean; readonly reason: 'worker' | 'operator' }
  | ({ readonly verb: 'release'; readonly delayMs: number } & OfHandOut)
  | ({
      readonly verb: 'report';
      readonly status: 'succeeded' | 'failed';
      readonly result: string | undefined;
      readonly error: string | undefined;
      readonly isFinal: boolean;
    } & OfHandOut)
  /** Each patch has a value of its own. */
  | { readonly verb: 'patch'; readonly id: string; readonly key: string; readonly value: string }
  | { readonly verb: 'cancel'; readonly session: string }
  | { readonly verb: 'acquire'; readonly lock: string; readonly owner: string; readonly ttlSeconds: number }
  | { readonly verb: 'renew'; readonly lock: string; readonly token: number; readonly ttlSeconds: number }
  | { readonly verb: 'let go'; readonly lock: string; readonly token: number };

/** By the hash of the hand-out's token; null: an API key's call, of whatever hand-out the id names. */
type OfHandOut = { readonly id: string; readonly tokenHash: string | null };

/** A call and what came of it. */
export type Call = Asked & {
  readonly n: number;
  /** The replica that was asked. */
  readonly by: string;
  /** By the test's ticks. Never ended: it may be applied at any time. */
  readonly begun: number;
  ended: number;
  /** By the database's clock, in microseconds. */
  readonly notBefore: number;
  notAfter: number;
  elapsedMs: number;
  outcome: Outcome;
};
export type CallOf<Verb extends Asked['verb']> = Extract<Call, { readonly verb: Verb }>;

export const isCall =
  <Verb extends Asked['verb']>(verb: Verb) =>
  (call: Call): call is CallOf<Verb> =>
    call.verb === verb;

export const statusOf = ({ outcome }: Call): number | undefined =>
  outcome.kind === 'answered' ? outcome.status : undefined;

export const bodyOf = ({ outcome }: Call): Body => (outcome.kind === 'answered' ? outcome.body : null);

/** Of what happened, for whoever reads a failure. */
export function describe(call: Call): string {
  const { n, by, begun, ended, outcome, verb, notBefore: _, notAfter: __, elapsedMs: ___, ...asked } = call;
  const came = outcome.kind === 'answered' ? `${outcome.status} ${JSON.stringify(outcome.body)}` : outcome.why;
  return `call ${n} ${verb} ${JSON.stringify(asked)} to ${by}, ticks ${begun} to ${ended}: ${came}`;
}
