import { createLocks } from '../../locks/create-locks.ts';
import { AcquireBody, Lock, LockParams, toLockObject } from '../../wire/locks.ts';
import { Component } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function acquireLockRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'PUT',
    url: '/control/v1/environments/:environment_id/locks/:name',
    config: { access: 'member' },
    schema: {
      operationId: 'acquireLock',
      summary: 'Take a lock, for one expensive call at a time',
      description:
        'A lock that is free or has expired is taken under a new token. The owner that holds it gets the same token again, so that a lost answer locks nobody out. ' +
        "While another owner holds it: 409, with `error.details` of `error_code: lock_held`, `locked: true`, `expires_at` and `expires_in_ms`. Takes no Idempotency-Key, which the owner's name makes good for, and leaves no audit entry. " +
        'Also in an archived environment, where work goes on.',
      tags: ['locks'],
      params: LockParams,
      body: AcquireBody,
      response: responses({ 200: Component(Lock) }, 400, 401, 403, 404, 409, 413),
    },
    async handler({ params: { environment_id: environmentId, name }, body: { owner, ttl_seconds: ttlSeconds } }) {
      return toLockObject(await createLocks({ database, queue, environmentId }).acquire({ name, owner, ttlSeconds }));
    },
  });
}
