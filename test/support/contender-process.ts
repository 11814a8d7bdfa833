import { createRemoteLocks } from '../../src/client/index.ts';
import { payFor } from './paid-call.ts';

/** One that asks for the paid call, as a process of its own, for tests that kill it: its call never ends. */
const { BASE_URL = '', API_KEY = '', ENVIRONMENT_ID = '', PAID_URL = '' } = process.env;
const locks = createRemoteLocks({ baseUrl: BASE_URL, apiKey: API_KEY, environmentId: ENVIRONMENT_ID });
const paid = payFor(PAID_URL, ENVIRONMENT_ID);
await locks.singleFlight('call', { ttlSeconds: 10, check: paid.check, run: paid.begin });
