import Anthropic from '@anthropic-ai/sdk';

/** The official worker as a process of its own, for tests that kill it: see `startWorker` in `process.ts`. */
const { BASE_URL = '', ENVIRONMENT_ID = '', ENVIRONMENT_KEY = '', FOLDER = '' } = process.env;
const client = new Anthropic({ baseURL: BASE_URL, apiKey: null, authToken: null, logLevel: 'warn' });
await client.beta.environments.work
  .worker({ environmentId: ENVIRONMENT_ID, environmentKey: ENVIRONMENT_KEY, workdir: FOLDER, maxIdleMs: 100 })
  .run();
