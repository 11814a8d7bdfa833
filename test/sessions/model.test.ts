import assert from 'node:assert/strict';
import fc from 'fast-check';
import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { cancelSession } from '../../src/queue/cancel-session.ts';
import { only, QueueError } from '../../src/queue/errors.ts';
import { appendEvents } from '../../src/sessions/append.ts';
import { createSession } from '../../src/sessions/create.ts';
import { archiveSession } from '../../src/sessions/end.ts';
import type { Sender, SentEvent } from '../../src/sessions/events.ts';
import { listEvents } from '../../src/sessions/read-events.ts';
import { retrieveSession } from '../../src/sessions/read.ts';
import { testDatabase } from '../support/harness.ts';

/** `MODEL_HISTORIES=2000 MODEL_SEED=… npm test -- test/sessions/model.test.ts` runs more, or the same again. */
const HISTORIES = Number(process.env.MODEL_HISTORIES ?? 150);
const SEED = process.env.MODEL_SEED === undefined ? undefined : Number(process.env.MODEL_SEED);
const STEPS_MAX = 40;
const LIVE = ['queued', 'starting', 'active'];

/** What may happen to a session. `n` chooses among the calls that were made. */
const STEPS = {
  message: 2,
  interrupt: 1,
  'agent message': 2,
  'a call': 5,
  'a call that asks': 2,
  'a call that is denied': 1,
  "a call of a worker's custom tool": 3,
  "a call of somebody else's custom tool": 1,
  allow: 2,
  deny: 2,
  'a result': 5,
  'a custom result of a worker': 4,
  'a custom result of its owner': 1,
  'a worker takes it': 5,
  'the worker ends': 4,
  'an operator stops it': 2,
  'its work is cancelled': 1,
  'its lease lapses': 1,
  'what waits is due': 3,
  'the background looks': 6,
  archive: 0.2,
} as const;
type Verb = keyof typeof STEPS;
type Step = { readonly verb: Verb; readonly n: number };

const step: fc.Arbitrary<Step> = fc.record({
  verb: fc.oneof(
    ...Object.entries(STEPS).map(([verb, weight]) => ({ arbitrary: fc.constant(verb as Verb), weight: weight * 10 })),
  ),
  n: fc.nat(5),
});

type Call = {
  readonly id: string;
  readonly kind: 'tool' | 'custom';
  readonly name: string;
  fate: 'open' | 'asks' | 'answered' | 'denied';
};

t.setTimeout(20_000 + HISTORIES * 1_000);

t.test('whatever happens to a session, nobody waits for a worker in vain and no call is answered twice', async (t) => {
  const database = await testDatabase(t);
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  const { workItems, sessions } = database.names;
  const { id: environmentId } = await createEnvironment(database, { name: 'model', type: 'self_hosted' });
  const met = new Map<string, number>();

  const items = (sessionId: string) =>
    database.rows(sql<{ id: string; state: string; isWaiting: boolean }>`
      select w.id, w.state, coalesce(w.not_before > clock_timestamp(), false) as "isWaiting" from ${workItems} w
      where w.session_id = ${sessionId} order by w.seq`);

  async function play(history: readonly Step[]): Promise<void> {
    const { session } = await createSession(database, { environmentId });
    const calls: Call[] = [];
    const owned = new Set<string>();
    const stored: string[] = [];
    let [isHeld, isArchived] = [false, false];
    const isRunnable = ({ fate, kind, name }: Call) => fate === 'open' && (kind === 'tool' || owned.has(name));
    const isOpen = ({ fate }: Call) => fate === 'open' || fate === 'asks';
    const live = async () => (await items(session.id)).filter(({ state }) => LIVE.includes(state));

    /** Appends one event; whether it must be taken is the model's to say. Answers the event, undefined where it was refused. */
    async function append(
      sent: SentEvent,
      sender: Sender,
      isTaken: boolean,
      repeats?: string,
    ): Promise<Record<string, string> | undefined> {
      const outcome = await appendEvents(database, session.id, [sent], sender).catch((error: unknown) => {
        if (error instanceof QueueError) return error;
        throw error;
      });
      const isFresh = isTaken && !isArchived;
      if (repeats !== undefined) {
        assert(!(outcome instanceof QueueError) && !outcome.isChanged, 'a repeat is answered');
        assert.equal(outcome.events[0], repeats, 'with what is stored');
        return undefined;
      }
      if (!isFresh) {
        assert(outcome instanceof QueueError, `${sent.type} is refused`);
        assert.match(outcome.code, /^(invalid_request|session_terminated)$/);
        return undefined;
      }
      if (outcome instanceof QueueError) throw outcome;
      stored.push(outcome.events[0] ?? '');
      return JSON.parse(outcome.events[0] ?? '');
    }
    const answers = new Map<string, string>();
    async function result(
      call: Call | undefined,
      type: 'user.tool_result' | 'user.custom_tool_result',
      sender: Sender,
    ): Promise<void> {
      const id = call?.id ?? 'sevt_unknown';
      const sent: SentEvent =
        type === 'user.tool_result'
          ? { type, tool_use_id: id, content: [] }
          : { type, custom_tool_use_id: id, content: [] };
      const isKind = call?.kind === (type === 'user.tool_result' ? 'tool' : 'custom');
      const done = await append(sent, sender, isKind && call?.fate === 'open', isKind ? answers.get(id) : undefined);
      if (done === undefined || call === undefined) return;
      answers.set(id, stored.at(-1) ?? '');
      call.fate = 'answered';
      if (sender === 'worker' && call.kind === 'custom') owned.add(call.name);
    }
    async function call(kind: Call['kind'], name: string, permission?: 'ask' | 'deny'): Promise<void> {
      const sent: SentEvent =
        kind === 'custom'
          ? { type: 'agent.custom_tool_use', name, input: {} }
          : {
              type: 'agent.tool_use',
              name,
              input: {},
              ...(permission === undefined ? {} : { evaluated_permission: permission }),
            };
      const done = await append(sent, 'agent', true);
      if (done?.id !== undefined) {
        calls.push({
          id: done.id,
          kind,
          name,
          fate: permission === 'ask' ? 'asks' : permission === 'deny' ? 'denied' : 'open',
        });
      }
    }
    async function confirm(chosen: Call | undefined, verdict: 'allow' | 'deny'): Promise<void> {
      const id = chosen?.id ?? 'sevt_unknown';
      const isTaken = chosen?.kind === 'tool' && (verdict === 'deny' ? isOpen(chosen) : chosen.fate === 'asks');
      const key = `${id} ${verdict}`;
      const done = await append(
        { type: 'user.tool_confirmation', tool_use_id: id, result: verdict },
        'agent',
        isTaken,
        answers.get(key),
      );
      if (done === undefined || chosen === undefined) return;
      answers.set(key, stored.at(-1) ?? '');
      chosen.fate = verdict === 'allow' ? 'open' : 'denied';
    }

    for (const { verb, n } of history) {
      const chosen = calls.at(n % Math.max(1, calls.length));
      const [before, runnableBefore] = [await live(), calls.filter(isRunnable).length];
      let arms = false;
      switch (verb) {
        case 'message':
          await append({ type: 'user.message', content: [] }, 'agent', true);
          arms = true;
          break;
        case 'interrupt':
          await append({ type: 'user.interrupt' }, 'agent', true);
          arms = true;
          break;
        case 'agent message':
          await append({ type: 'agent.message', content: [] }, 'agent', true);
          break;
        case 'a call':
          await call('tool', 'bash');
          break;
        case 'a call that asks':
          await call('tool', 'bash', 'ask');
          break;
        case 'a call that is denied':
          await call('tool', 'bash', 'deny');
          break;
        case "a call of a worker's custom tool":
          await call('custom', 'theirs');
          break;
        case "a call of somebody else's custom tool":
          await call('custom', 'ours');
          break;
        case 'allow':
        case 'deny':
          await confirm(chosen, verb);
          break;
        case 'a result':
          await result(chosen, 'user.tool_result', 'worker');
          break;
        case 'a custom result of a worker':
          if (chosen?.name !== 'ours') await result(chosen, 'user.custom_tool_result', 'worker');
          break;
        case 'a custom result of its owner':
          await result(chosen, 'user.custom_tool_result', 'agent');
          break;
        case 'a worker takes it': {
          const handOut = await queue.poll({ environmentId, workerId: 'worker' });
          if (handOut === null) break;
          assert.equal(handOut.item.sessionId, session.id);
          only(await queue.ack([{ environmentId, id: handOut.item.id }]));
          const beat = { environmentId, id: handOut.item.id, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false };
          only(await queue.heartbeat([beat]));
          break;
        }
        case 'the worker ends':
        case 'an operator stops it': {
          const [item] = before;
          if (item === undefined) break;
          const isWorker = verb === 'the worker ends';
          only(
            await queue.stop([
              { environmentId, id: item.id, force: isWorker, reason: isWorker ? 'worker' : 'operator' },
            ]),
          );
          if (!isWorker) isHeld = true;
          break;
        }
        case 'its work is cancelled':
          await cancelSession(database, environmentId, session.id);
          if (before.length > 0) isHeld = true;
          break;
        case 'its lease lapses':
          await database.rows(sql`update ${workItems} set lease_expires_at = clock_timestamp() - interval '10 seconds'
            where session_id = ${session.id} and lease_expires_at is not null`);
          break;
        case 'what waits is due':
          await database.rows(sql`update ${workItems} set not_before = null where session_id = ${session.id}`);
          break;
        case 'the background looks':
          await queue.sweep();
          break;
        case 'archive':
          await archiveSession(database, session.id);
          for (const open of calls.filter(isOpen)) open.fate = 'denied';
          isArchived = true;
          break;
      }
      const runnable = calls.filter(isRunnable).length;
      // What makes something runnable arms; a worker that learns to own a tool finds its other calls by itself.
      const isNew = ['a call', 'allow', "a call of a worker's custom tool"].includes(verb) && runnable > runnableBefore;
      arms ||= isNew;
      if (arms && !isArchived) isHeld = false;
      await check({
        arms: arms && !isArchived,
        isUrgent: verb === 'message' || verb === 'interrupt',
        hasLooked: verb === 'the background looks',
      });
      met.set(verb, (met.get(verb) ?? 0) + 1);
    }

    async function check({
      arms,
      isUrgent,
      hasLooked,
    }: {
      arms: boolean;
      isUrgent: boolean;
      hasLooked: boolean;
    }): Promise<void> {
      const now = await live();
      assert(now.length <= 1, 'one live item');
      if (isArchived) assert.equal(now.length, 0, 'no work of a session that is over');
      if (arms) assert.equal(now.length, 1, 'it is armed');
      if (arms && isUrgent) assert.equal(now[0]?.isWaiting, false, 'nothing is waited for');
      const { status } = await retrieveSession(database, session.id);
      const { events } = await listEvents(database, session.id, { limit: 1_000 });
      const told = events.map((event) => JSON.parse(event));
      const isStatus = ({ type }: { type: string }) => type.startsWith('session.status_');
      assert.deepEqual(
        events.filter((_, n) => !isStatus(told[n])),
        stored,
        'every event once, in order',
      );
      const last = told.filter(isStatus).at(-1);
      const reason = last?.stop_reason?.type;
      if (hasLooked && calls.some(isRunnable) && !isHeld && reason !== 'retries_exhausted') {
        assert.equal(now.length, 1, 'whoever waits for a worker has one coming');
      }
      if (hasLooked && isHeld) assert.equal(now.length, 0, 'what was stopped by somebody is not started by itself');
      if (last !== undefined) assert.equal(last.type, `session.status_${status}`, 'the status is the last one told');
      const open = calls.filter(isOpen).map(({ id }) => id);
      if (reason === 'requires_action') assert.deepEqual(last.stop_reason.event_ids, open, 'what is open is told');
      if (open.length > 0) assert.match(reason, /requires_action|retries_exhausted/);
      if (reason === 'retries_exhausted') met.set(reason, 1);
      met.set(`status ${status}`, 1);
    }
    if (!isArchived) await archiveSession(database, session.id);
    await database.rows(sql`delete from ${sessions} where id = ${session.id}`);
  }

  let steps = 0;
  const outcome = await fc.check(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: STEPS_MAX, size: 'max' }), async (history) => {
      steps += history.length;
      await database.rows(sql`delete from ${workItems}`);
      await play(history);
    }),
    { numRuns: HISTORIES, endOnFailure: process.env.TAP_BAIL === '1', ...(SEED === undefined ? {} : { seed: SEED }) },
  );
  t.comment(`${outcome.numRuns} histories, ${steps} steps, seed ${outcome.seed}`);
  if (outcome.failed)
    t.comment(
      `MODEL_SEED=${outcome.seed}: ${JSON.stringify(outcome.counterexample)}\n${String(outcome.errorInstance)}`,
    );
  t.notOk(outcome.failed, 'no violation');
  if (!outcome.failed)
    t.same(
      Object.keys(STEPS).filter((verb) => !met.has(verb)),
      [],
      'every step was met',
    );
});
