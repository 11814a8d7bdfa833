const { LEASEHOLD_URL: url = 'http://127.0.0.1:8080', ANTHROPIC_ENVIRONMENT_KEY: key = '' } = process.env;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Again until there is an answer, or a refusal. What is sent again says so: a lost answer is then given once more. */
async function call(method, path, { as = key, body } = {}) {
  for (let retry = 0; ; retry = Math.min(retry + 1, 2)) {
    const headers = { authorization: `Bearer ${as}`, 'anthropic-worker-id': 'my-backend' };
    if (retry > 0) headers['x-stainless-retry-count'] = `${retry}`;
    if (body !== undefined) headers['content-type'] = 'application/json';
    const response = await fetch(url + path, { method, headers, body: JSON.stringify(body) }).catch(() => undefined);
    if (response?.ok) return response.json();
    const isRefused = response !== undefined && response.status < 500 && response.status !== 429;
    if (isRefused) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    await sleep(1_000);
  }
}

/** Keeps the lease of an item until `over`; aborts `stop` when somebody asked for it to end, or it is not ours any more. */
async function keep(path, stop, over) {
  for (let beat = 'NO_HEARTBEAT'; !over.aborted; ) {
    const told = await call('POST', `${path}/heartbeat?expected_last_heartbeat=${encodeURIComponent(beat)}`);
    beat = told.last_heartbeat;
    if (told.state !== 'active') stop.abort(new Error(`it is ${told.state}`));
    const ended = new Promise((resolve) => over.addEventListener('abort', resolve, { once: true }));
    await Promise.race([sleep((told.ttl_seconds * 1_000) / 3), ended]);
  }
}

async function run({ id, environment_id, secret }) {
  const item = `environments/${environment_id}/work/${id}`;
  const as = JSON.parse(Buffer.from(secret, 'base64url')).sessions_token; // stands for this hand-out alone
  await call('POST', `/v1/${item}/ack`);
  const [stop, over] = [new AbortController(), new AbortController()];
  const keeping = keep(`/v1/${item}`, stop, over.signal).catch((error) => stop.abort(error));
  try {
    const { input } = await call('GET', `/control/v1/${item}/input`, { as });
    const report = await work(input, stop.signal).then(
      (result) => ({ status: 'succeeded', result }),
      (error) => ({ status: 'failed', error: `${error}`.slice(0, 2_000) }),
    );
    await call('PATCH', `/control/v1/${item}`, { as, body: report });
  } finally {
    over.abort(); // whatever was refused: a lease that nobody works under is to lapse
    await keeping;
  }
}

async function work(input, signal) {
  return { echoed: input, wanted: !signal.aborted }; // yours
}

const { environment_id } = await call('GET', '/control/v1/caller');
for (;;) {
  const item = await call('GET', `/v1/environments/${environment_id}/work/poll?block_ms=999`);
  if (item === null) await sleep(1_000);
  else await run(item).catch((error) => console.error(error));
}
