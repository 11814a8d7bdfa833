import { Caller, toCaller } from '../../wire/caller.ts';
import type { App } from '../app.ts';
import { responses } from './responses.ts';

export function readCallerRoute(app: App): void {
  app.route({
    method: 'GET',
    url: '/control/v1/caller',
    config: { access: 'environment' },
    schema: {
      operationId: 'readCaller',
      summary: 'Whose key this is',
      description: 'A worker that was given nothing but a key learns its environment here.',
      tags: ['control'],
      response: responses({ 200: Caller }, 401, 403),
    },
    async handler({ caller }) {
      if (caller === undefined || caller.kind === 'session') throw new Error('let in without a key');
      return toCaller(caller);
    },
  });
}
