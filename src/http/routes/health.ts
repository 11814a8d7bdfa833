import { schemaStatus } from '../../db/migrate.ts';
import { QueueError } from '../../queue/errors.ts';
import { VERSION } from '../../version.ts';
import { Health, Readiness } from '../../wire/control.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function healthRoutes(app: App, { database }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/healthz',
    config: { access: 'anyone' },
    schema: {
      operationId: 'healthz',
      summary: 'The process answers',
      tags: ['health'],
      security: [],
      response: responses({ 200: Health }, 400),
    },
    handler: async () => ({ status: 'ok' as const, version: VERSION }),
  });

  app.route({
    method: 'GET',
    url: '/readyz',
    config: { access: 'anyone' },
    schema: {
      operationId: 'readyz',
      summary: 'The database is reached and its schema serves this version',
      tags: ['health'],
      security: [],
      response: responses({ 200: Readiness }, 400),
    },
    async handler() {
      const schema = await schemaStatus(database);
      if (schema === 'older')
        throw new QueueError('unavailable', 'the database schema is older than this server: migrate');
      return { status: 'ready' as const, schema };
    },
  });
}
