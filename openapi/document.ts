import swagger from '@fastify/swagger';
import type { Callers } from '../src/control/credentials.ts';
import type { Queue } from '../src/create-queue.ts';
import type { Database } from '../src/db/connect.ts';
import { buildApp } from '../src/http/app.ts';

/** The OpenAPI document, from the very schemas that validate and serialise. No route is called, so nothing stands behind. */
export async function openApiDocument(): Promise<string> {
  const app = buildApp({
    queue: {} as Queue,
    database: {} as Database,
    callers: {} as Callers,
    publicUrl: () => '',
    beforeRoutes: (app) => void app.register(swagger, OPTIONS),
  });
  await app.ready();
  const document = app.swagger();
  await app.close();
  for (const path of Object.values(document.paths ?? {})) {
    for (const { requestBody } of Object.values(path ?? {}) as Operation[]) {
      const schema = requestBody?.content['application/json']?.schema;
      if (requestBody !== undefined && schema?.type?.includes('null')) requestBody.required = false; // no body will do
    }
  }
  return `${JSON.stringify(document, null, 2)}\n`;
}

type Operation = {
  requestBody?: { required?: boolean; content: Record<string, { schema?: { type?: string | string[] } }> };
};

const OPTIONS = {
  openapi: {
    openapi: '3.1.0' as const,
    info: {
      title: 'Leasehold work API',
      version: '1',
      summary: 'Self-hosted workers poll work from here',
      description:
        'The routes under `/v1` speak the wire protocol of the official environment workers. ' +
        'What is under `/control/v1` is our own. Every answer carries `request-id`.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: 'http://127.0.0.1:8080', description: 'The default address' }],
    tags: [
      { name: 'work', description: 'What workers call, and operators who watch them' },
      { name: 'environments', description: 'Where work waits, in the official shape' },
      { name: 'control', description: 'Keys and enqueueing' },
      { name: 'health', description: 'Probes' },
    ],
    components: {
      securitySchemes: {
        bearer: { type: 'http' as const, scheme: 'bearer', description: 'Environment key, sessions token or API key' },
        apiKey: {
          type: 'apiKey' as const,
          in: 'header' as const,
          name: 'x-api-key',
          description: 'The same, as a header',
        },
      },
    },
    security: [{ bearer: [] }, { apiKey: [] }],
  },
  refResolver: {
    buildLocalReference: (
      json: { $id?: unknown; title?: unknown },
      _base: unknown,
      _fragment: unknown,
      index: number,
    ) => (typeof json.title === 'string' ? json.title : `schema-${index}`),
  },
};
