/**
 * A host of one's own for work, in plain fetch: takes items one at a time, keeps their leases, says what became of them.
 * LEASEHOLD_URL and LEASEHOLD_ENVIRONMENT_KEY say where from. What it does with an input stands in `work`, at the end.
 */
const { LEASEHOLD_URL: url = 'http://127.0.0.1:8080', LEASEHOLD_ENVIRONMENT_KEY: key = '' } = process.env;
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function call(
  method: string,
  path: string,
  { as = key, body, retry = 0 }: { as?: string; body?: object; retry?: number } = {},
) {
  const headers = {
    authorization: `Bearer ${as}`,
    'anthropic-worker-id': 'my-backend',
    'content-type': 'application/json',
  };
  const marked = retry > 0 ? { ...headers, 'x-stainless-retry-count': `${Math.min(retry, 2)}` } : headers;
  const response = await fetch(url + path, {
    method,
    headers: marked,
    body: body === undefined ? null : JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw Object.assign(new Error(`${response.status}: ${text}`), { status: response.status });
  return text === '' ? undefined : JSON.parse(text);
}

/** Again until there is an answer, or a refusal: a lost answer is asked for with the same request (the mark says so). */
async function insist(method: string, path: string, options: Parameters<typeof call>[2] = {}) {
  for (let retry = 0; ; retry++) {
    try {
      return await call(method, path, { ...options, retry });
    } catch (error) {
      const { status = 503 } = error as { status?: number };
      if (status !== 429 && status < 500) throw error;
      await sleep(1_000);
    }
  }
}

async function run({ id, environment_id, secret }: { id: string; environment_id: string; secret: string }) {
  const as = JSON.parse(Buffer.from(secret, 'base64url').toString()).sessions_token;
  const [wire, control] = ['/v1', '/control/v1'].map((root) => `${root}/environments/${environment_id}/work/${id}`);
  await insist('POST', `${wire}/ack`);
  const [stop, over] = [new AbortController(), new AbortController()];
  const keeping = (async () => {
    for (let beat = 'NO_HEARTBEAT'; !over.signal.aborted; ) {
      const told = await insist('POST', `${wire}/heartbeat?expected_last_heartbeat=${encodeURIComponent(beat)}`);
      beat = told.last_heartbeat;
      if (told.state !== 'active') stop.abort(new Error('somebody asked for it to end'));
      const next = sleep(told.ttl_seconds * 333);
      await Promise.race([next, new Promise((resolve) => over.signal.addEventListener('abort', resolve))]);
    }
  })().catch((error) => stop.abort(error)); // not ours any more
  const { input } = await insist('GET', `${control}/input`, { as });
  const report = await work(input, stop.signal).then(
    (result) => ({ status: 'succeeded', result }),
    (error) => ({ status: 'failed', error: `${error}`.slice(0, 2_000) }),
  );
  await insist('PATCH', control ?? '', { as, body: report });
  over.abort();
  await keeping;
}

async function work(input: unknown, signal: AbortSignal): Promise<unknown> {
  signal.throwIfAborted();
  return { echoed: input };
}

const { environment_id } = await insist('GET', '/control/v1/caller');
for (;;) {
  const item = await insist('GET', `/v1/environments/${environment_id}/work/poll?block_ms=999`);
  if (item === null) await sleep(1_000);
  else await run(item).catch((error) => console.error(error));
}
