import { createLocks } from '../../locks/create-locks.ts';
import { Lock, LockParams, RenewBody, toLockObject } from '../../wire/locks.ts';
import { Component } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function renewLockRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/locks/:name/renew',
    config: { access: 'member' },
    schema: {
      operationId: 'renewLock',
      summary: 'Hold a lock for longer',
      description:
        "By its token. Once it has expired, was released or is another owner's: 409, with `error.details.error_code: lock_lost`; it has to be acquired again, under a new token.",
      tags: ['locks'],
      params: LockParams,
      body: RenewBody,
      response: responses({ 200: Component(Lock) }, 400, 401, 403, 404, 409, 413),
    },
    async handler({ params: { environment_id: environmentId, name }, body: { token, ttl_seconds: ttlSeconds } }) {
      return toLockObject(await createLocks({ database, queue, environmentId }).renew({ name, token }, ttlSeconds));
    },
  });
}
