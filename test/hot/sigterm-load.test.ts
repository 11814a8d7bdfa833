import { Agent, request as httpRequest } from 'node:http';
import t from 'tap';
import { until } from '../support/harness.ts';
import { freshDatabase, request, startMain } from '../support/process.ts';

const OPERATOR_KEY = 'operator-key-of-this-process';
const CLIENTS = 24;
/** After the signal each client goes on for so long, then it is elsewhere: who connects in the very moment that the listener closes is reset. */
const CYCLES_WHILE_ENDING = 20;
/** Far longer than a busy machine takes for those: what is under way when the grace is over is reset. */
const GRACE_SECONDS = 120;

type Outcome = { readonly status: number; readonly text: string; readonly connection: string | undefined };

t.test(
  'SIGTERM under load: every request that was taken is answered, no connection is reset, and the end is clean',
  async (t) => {
    const server = await startMain(t, {
      DATABASE_URL: await freshDatabase(t),
      LEASEHOLD_API_KEY: OPERATOR_KEY,
      SHUTDOWN_GRACE_SECONDS: `${GRACE_SECONDS}`,
    });
    const { json } = await request(`${server.url}/v1/environments`, OPERATOR_KEY, { name: 'production' });
    const work = `${server.url}/v1/environments/${json.id}/work`;
    const enqueue = `${server.url}/control/v1/environments/${json.id}/work/batch`;
    for (let n = 0; n < 4; n++) {
      const items = Array.from({ length: 1_000 }, (_, m) => ({ data: { type: 'session', id: `${n}-${m}` } }));
      await request(enqueue, OPERATOR_KEY, { items });
    }
    const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
    t.teardown(() => agent.destroy());
    const ask = (method: string, url: string): Promise<Outcome> =>
      new Promise((resolve, reject) => {
        const sent = httpRequest(url, { method, agent, headers: { 'x-api-key': OPERATOR_KEY } }, (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk) => {
            text += chunk;
          });
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, text, connection: response.headers.connection }),
          );
          response.on('error', reject);
        });
        sent.on('error', reject).end();
      });

    let [answered, whileEnding] = [0, 0];
    let isEnding = false;
    const faults: string[] = [];
    const loop = async () => {
      for (let left = CYCLES_WHILE_ENDING; left > 0; left -= isEnding ? 1 : 0) {
        try {
          const polled = await ask('GET', `${work}/poll`);
          const { id } = JSON.parse(polled.text) ?? {};
          const calls = id === undefined ? [] : ['ack', 'heartbeat?expected_last_heartbeat=NO_HEARTBEAT', 'stop'];
          const outcomes = [polled];
          for (const name of calls) outcomes.push(await ask('POST', `${work}/${id}/${name}`));
          answered += outcomes.length;
          if (isEnding) whileEnding += outcomes.length;
          for (const { status, text } of outcomes) if (status >= 300) faults.push(`${status} ${text}`);
        } catch (error) {
          const { code = String(error) } = error as { code?: string };
          if (code !== 'ECONNREFUSED') faults.push(code); // it is gone
          return;
        }
      }
    };
    const load = Promise.all(Array.from({ length: CLIENTS }, loop));
    await until('the load to be under way', () => answered > 200);
    const since = performance.now();
    server.child.kill('SIGTERM');
    isEnding = true;
    t.strictSame(await server.ended(), { code: 0, signal: null });
    const ms = performance.now() - since;
    await load;
    t.strictSame(faults, []);
    t.ok(whileEnding > 0, `${whileEnding} requests were answered after the signal`);
    t.ok(ms < (GRACE_SECONDS * 1_000) / 2, `ended after ${ms.toFixed(0)} ms`);
  },
);
