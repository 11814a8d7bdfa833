import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { QueueError } from '../../src/queue/errors.ts';
import { agree, checkNotFound } from './agree.ts';
import * as model from './model.ts';
import { byClaimOrder, detail, itemsOf, nameAll, nameOf, names, pairs, placeOf, tokenOf } from './naming.ts';
import type { Operation } from './operations.ts';
import type { ModelItem, World } from './world.ts';

/** What one step did: a line for the history, and the items whose rows it may have changed. */
export type Step = { readonly line: string; readonly changed: ReadonlySet<ModelItem> };

/** Runs a step on the library, tells the model, and holds the answers against it. Undefined: there was nothing to do it to. */
export async function perform(world: World, operation: Operation): Promise<Step | undefined> {
  const { queue } = world;
  const changed = new Set<ModelItem>();
  const done = (line: string): Step => ({ line, changed });

  switch (operation.verb) {
    case 'enqueue': {
      const { slot, priority, postponed } = operation;
      const before = itemsOf(world, slot);
      const covering = before.find(model.isLive);
      const { environmentId, sessionId, kind } = placeOf(world, slot);
      const answer = await queue.enqueue({
        ...{ environmentId, sessionId, kind, priority },
        ...(postponed ? { notBefore: '2999-01-01T00:00:00Z' } : {}),
      });
      assert.equal(answer.created, covering === undefined, 'created, or covered by a live item');
      let item = covering;
      if (item === undefined) {
        const { id, seq, createdAt } = answer.item;
        item = {
          ...{ name: slot + "'".repeat(before.length), slot, environmentId, sessionId, kind, priority, seq, createdAt },
          ...{ due: !postponed, state: 'queued', id, oldIds: [], known: false, reservedBy: null, leaseSeconds: null },
          ...{ ttlSeconds: null, started: false, wasActive: false, lastHeartbeat: null, replaced: null, metadata: {} },
          ...{ handOuts: [], tokens: [] },
        };
        world.items.push(item);
        changed.add(item);
      }
      agree(answer.item, item);
      return done(`enqueue ${slot}${detail({ priority, postponed })} → ${covering ? 'covered' : 'created'}`);
    }

    case 'poll': {
      const { takers, reservationMs } = operation;
      const environmentId = world.environments[operation.environment];
      const here = world.items.filter((item) => item.environmentId === environmentId);
      for (const item of here.filter(model.isAbandoned)) {
        world.met('poll', item.state, 'finalised');
        model.end(item);
        changed.add(item);
      }
      const claimable = here.filter(model.isClaimable);
      const order = claimable.filter((item) => item.state === 'queued').sort(byClaimOrder);
      const request = { environmentId, reclaimOlderThanMs: reservationMs };
      const answers = await Promise.all(Array.from({ length: takers }, () => queue.poll(request)));
      const given = answers.flatMap((handOut) => {
        if (handOut === null) return [];
        const item = claimable.find(({ seq }) => seq === handOut.item.seq);
        assert(item && !changed.has(item), `${world.named(handOut.item.seq)} was free, and went to one taker`);
        const { id } = handOut.item;
        world.met('poll', item.state, item.known ? 'new id' : 'id kept');
        assert.equal(id === item.id, !item.known, 'the first hand-out keeps the id, every other mints one');
        assert(!item.oldIds.includes(id), 'an id is never used again');
        model.handOut(item, id, handOut, Math.min(reservationMs, 600_000) / 1_000);
        item.handOuts.push(handOut);
        changed.add(item);
        agree(handOut.item, item);
        return [item];
      });
      assert.equal(given.length, Math.min(takers, claimable.length), 'nobody goes away empty while there is work');
      const queued = given.filter((item) => order.includes(item));
      assert.deepEqual(queued.map(nameOf), order.slice(0, queued.length).map(nameOf), 'by priority, then oldest first');
      return done(
        `poll ${operation.environment}${detail({ takers, reservationMs })} → ${given.map(nameOf).join(', ') || null}`,
      );
    }

    case 'ack': {
      const named = nameAll(world, operation.targets);
      if (named.length === 0) return undefined;
      const answers = await queue.ack(named.map(({ ref }) => ref));
      const results = named.map((target, n) => {
        const answer = answers[n];
        if (!target.isFound) return checkNotFound(answer, target);
        world.met('ack', target.item.state, 'answered');
        if (model.ack(target.item)) changed.add(target.item);
        assert(answer !== undefined && !(answer instanceof QueueError), 'ack is never a conflict');
        agree(answer, target.item);
        return answer.state;
      });
      return done(`ack ${pairs(named, results)}`);
    }

    case 'heartbeat': {
      const { token, isRetry, desiredTtlSeconds } = operation;
      const named = nameAll(world, operation.targets);
      // The same item twice in a set would need a token that the set has yet to mint.
      const distinct = named.filter(({ item }, n) => named.findIndex((other) => other.item === item) === n);
      if (distinct.length === 0) return undefined;
      const requests = distinct.map(({ item, ref }) => ({
        ...ref,
        ...{ expectedLastHeartbeat: tokenOf(item, token), isRetry, desiredTtlSeconds },
      }));
      const answers = await queue.heartbeat(requests);
      const results = distinct.map((target, n) => {
        const { item } = target;
        const [answer, request] = [answers[n], requests[n]];
        if (!target.isFound) return checkNotFound(answer, target);
        assert(answer !== undefined && request !== undefined);
        const verdict = model.judgeHeartbeat(item, request.expectedLastHeartbeat, isRetry);
        world.met('heartbeat', item.state, verdict);
        if (verdict === 'beat' || verdict === 'replay') {
          assert(!(answer instanceof QueueError), `a ${verdict} is accepted`);
          const ttl = Math.min(desiredTtlSeconds ?? model.LEASE_TTL_SECONDS, model.LEASE_TTL_SECONDS_MAX);
          if (verdict === 'replay') model.extend(item, ttl);
          else {
            const minted = answer.lastHeartbeat ?? '';
            assert(minted > (item.lastHeartbeat ?? ''), 'tokens strictly increase');
            assert(!item.tokens.includes(minted), 'a token is never used again');
            model.beat(item, minted, ttl);
            item.tokens.push(minted);
          }
          changed.add(item);
        }
        const { state, lastHeartbeat } = item;
        const ttlSeconds = item.ttlSeconds ?? model.LEASE_TTL_SECONDS;
        if (verdict === 'refused') {
          assert(answer instanceof QueueError, 'the heartbeat is refused');
          assert.equal(answer.code, 'precondition_failed');
          assert.deepEqual(answer.details, {
            error_code: 'heartbeat_precondition_failed',
            current_state: { state, last_heartbeat: lastHeartbeat, lease_extended: false, ttl_seconds: ttlSeconds },
          });
        } else {
          assert.deepEqual(answer, { lastHeartbeat, leaseExtended: verdict !== 'over', state, ttlSeconds });
        }
        return verdict;
      });
      return done(`heartbeat ${token}${detail({ isRetry, desiredTtlSeconds })} ${pairs(distinct, results)}`);
    }

    case 'stop': {
      const named = nameAll(world, operation.targets);
      if (named.length === 0) return undefined;
      const { force } = operation;
      const answers = await queue.stop(named.map(({ ref }) => ({ ...ref, force, reason: 'worker' })));
      const results = named.map((target, n) => {
        const answer = answers[n];
        if (!target.isFound) return checkNotFound(answer, target);
        const before = target.item.state;
        const result = model.stop(target.item, force);
        world.met(force ? 'forced stop' : 'stop', before, result);
        if (result !== 'conflict') changed.add(target.item);
        assert.equal(answer instanceof QueueError ? answer.code : answer?.state, result);
        return result;
      });
      return done(`stop${detail({ force })} ${pairs(named, results)}`);
    }

    case 'patch': {
      const [target] = nameAll(world, [operation.target]);
      if (target === undefined) return undefined;
      const { item, ref, label } = target;
      const answer = await queue.patchMetadata(ref, operation.metadata).catch(asRefusal);
      const line = (result: string) => done(`patch ${label} ${JSON.stringify(operation.metadata)} → ${result}`);
      if (!target.isFound) return line(checkNotFound(answer, target));
      if (!model.patch(item, operation.metadata)) {
        assert(answer instanceof QueueError && answer.code === 'invalid_metadata', 'too many pairs are refused');
        return line(answer.code);
      }
      assert(!(answer instanceof QueueError));
      changed.add(item);
      agree(answer, item);
      return line('merged');
    }

    case 'put back': {
      const item = itemsOf(world, operation.slot).at(-1);
      const handOut = item?.handOuts.at(operation.earlier ? -2 : -1);
      if (item === undefined || handOut === undefined) return undefined;
      const { earlier, unseen } = operation;
      const before = item.state;
      const result = model.putBack(item, handOut, unseen);
      if (result) changed.add(item);
      world.met('put back', before, result ? (unseen ? 'id kept' : 'new id') : 'refused');
      assert.equal(
        await queue.putBack(handOut, unseen),
        result,
        'only what is still reserved by that hand-out goes back',
      );
      return done(`put back ${item.name}${detail({ earlier, unseen })} → ${result}`);
    }

    case 'sweep': {
      for (const item of world.items) {
        // What lapsed a moment ago is moved up to the present, however long this history has taken.
        if (item.leaseSeconds === -1) {
          await world.moveLease(item, 1);
          changed.add(item);
        }
      }
      const [abandoned, lapsed] = [world.items.filter(model.isAbandoned), world.items.filter(model.isSweepable)];
      await queue.sweep();
      for (const item of abandoned) world.met('sweep', item.state, 'finalised');
      for (const item of lapsed) world.met('sweep', item.state, 'requeued');
      abandoned.forEach(model.end);
      lapsed.forEach(model.requeue);
      for (const item of [...abandoned, ...lapsed]) changed.add(item);
      return done(`sweep → stopped ${names(abandoned)}, queued ${names(lapsed)}`);
    }

    case 'lapse': {
      const item = itemsOf(world, operation.slot).at(operation.before ? -2 : -1);
      if (item === undefined || item.leaseSeconds === null) return undefined;
      item.leaseSeconds = -operation.secondsAgo;
      await world.moveLease(item, operation.secondsAgo);
      changed.add(item);
      return done(`the lease of ${item.name}, ${item.state}, lapsed ${operation.secondsAgo} s ago`);
    }

    case 'come due': {
      const item = itemsOf(world, operation.slot).at(-1);
      if (item === undefined || item.due) return undefined;
      item.due = true;
      await world.database.rows(sql`
        update ${world.database.names.workItems} set not_before = clock_timestamp() where seq = ${item.seq}`);
      changed.add(item);
      return done(`${item.name} comes due`);
    }

    case 'set the clock back': {
      const item = itemsOf(world, operation.slot).at(-1);
      if (item?.state !== 'active' || item.lastHeartbeat === null) return undefined;
      const ahead = item.lastHeartbeat.replace(/^\d{4}/, '2999');
      await world.database.rows(sql`
        update ${world.database.names.workItems} set last_heartbeat = ${ahead}::timestamptz where seq = ${item.seq}`);
      item.lastHeartbeat = ahead;
      item.tokens.push(ahead);
      changed.add(item);
      return done(`the clock is set back, the last beat of ${item.name} lies ahead`);
    }
  }
}

function asRefusal(error: unknown): QueueError {
  if (error instanceof QueueError) return error;
  throw error;
}
