import { createLocks } from '../../locks/create-locks.ts';
import { LockParams, LockReleased, LockReleaseBody } from '../../wire/locks.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function releaseLockRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/locks/:name/release',
    config: { access: 'member' },
    schema: {
      operationId: 'releaseLock',
      summary: 'Let a lock go',
      description:
        'By its token, which lets go nothing but what it holds. Once more, or when it has expired, changes nothing and is answered `released: false`. Whoever waits is told by the event `lock_released`.',
      tags: ['locks'],
      params: LockParams,
      body: LockReleaseBody,
      response: responses({ 200: LockReleased }, 400, 401, 403, 404, 413),
    },
    async handler({ params: { environment_id: environmentId, name }, body: { token } }) {
      const released = await createLocks({ database, queue, environmentId }).release({ name, token });
      return { type: 'lock_released' as const, released };
    },
  });
}
