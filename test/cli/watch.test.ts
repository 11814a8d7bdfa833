import { createServer } from 'node:http';
import t, { type Test } from 'tap';
import { inShell, leasehold } from '../support/command-line.ts';
import { lapse, OPERATOR_KEY, type Server, testServer, until } from '../support/harness.ts';
import { listenOnLoopback } from '../support/loopback.ts';
import { newPlace } from '../support/places.ts';

/** `work watch` of a place of its own, as it goes on. */
async function watching(t: Test, server: Server, args = '') {
  const place = await newPlace(server);
  const access = { LEASEHOLD_URL: server.url, LEASEHOLD_API_KEY: OPERATOR_KEY };
  const environment = { ...access, ANTHROPIC_ENVIRONMENT_ID: place.environment.id };
  const interrupt = new AbortController();
  let [printed, told] = ['', ''];
  const onOutput = (out: string, err: string) => {
    [printed, told] = [out, err];
  };
  const lines = () => printed.split('\n').slice(0, -1);
  const start = (more = '') => {
    const line = `work watch --interval-ms 100 ${args} ${more}`.trim().split(/ +/);
    const ended = leasehold(line, { environment, interrupted: interrupt.signal, onOutput });
    t.teardown(async () => {
      interrupt.abort();
      await ended;
    });
    return ended;
  };
  const reaches = (count: number) => until(`${count} lines`, () => lines().length >= count);
  return { place, environment, start, reaches, interrupt, lines, told: () => told };
}

t.test('a line for what is there, and one for each change; Ctrl-C ends it with 0', async (t) => {
  const server = await testServer(t);
  const { place, start, reaches, interrupt, lines } = await watching(t, server);
  const old = await place.enqueue('old');
  await place.stop(old);
  const one = await place.enqueue('one');
  const ended = start();
  await reaches(1);
  const two = await place.enqueue('two');
  await reaches(2);
  await place.poll('', { headers: { 'anthropic-worker-id': 'worker-1' } });
  await reaches(3);
  await place.ack(one);
  await reaches(4);
  await place.forceStop(one);
  await reaches(5);
  interrupt.abort();
  t.match(await ended, { code: 0, err: '' });
  t.strictSame(lines(), [
    `${one} of one is queued`,
    `${two} of two is queued`,
    `${one} of one is queued, with worker-1`,
    `${one} of one is starting, with worker-1`,
    `${one} of one is stopped (worker), last with worker-1`,
  ]);
});

t.test('one item is followed under its new ids until it has stopped, each line a JSON document', async (t) => {
  const server = await testServer(t);
  const { place, start, reaches, lines } = await watching(t, server, '--json');
  const first = await place.enqueue('session');
  const ended = start(`--id ${first}`);
  await reaches(1);
  await place.poll();
  await reaches(2);
  await lapse(place.database, first);
  const { json } = await place.poll();
  t.not(json.id, first);
  await reaches(3);
  await place.stop(json.id);
  t.match(await ended, { code: 0, err: '' });
  t.match(
    lines().map((line) => JSON.parse(line)),
    [
      { id: first, state: 'queued', hand_out_count: 0 },
      { id: first, state: 'queued', hand_out_count: 1 },
      { id: json.id, state: 'queued', hand_out_count: 2 },
      { id: json.id, state: 'stopped', stop_reason: 'worker' },
    ],
  );
});

t.test('one that has stopped already is told, and that is all', async (t) => {
  const server = await testServer(t);
  const { place, start } = await watching(t, server);
  const id = await place.enqueue('session');
  await place.stop(id);
  t.match(await start(`--id ${id}`), { code: 0, out: `${id} of session is stopped (worker)\n` });
});

t.test(
  'a server that goes away meanwhile is told of once and waited for; one that never answered is not',
  async (t) => {
    const server = await testServer(t);
    let isAway = false;
    let triesAway = 0;
    const front = createServer(async (request, response) => {
      if (isAway) {
        triesAway++;
        return void request.socket.destroy();
      }
      const answer = await fetch(`${server.url}${request.url}`, { headers: { 'x-api-key': OPERATOR_KEY } });
      response.end(await answer.text());
    });
    const port = await listenOnLoopback(t, front);
    const { place, environment, start, reaches, interrupt, told } = await watching(
      t,
      server,
      `--url http://127.0.0.1:${port}`,
    );
    await place.enqueue('one');
    const ended = start();
    await reaches(1);
    isAway = true;
    // Three tries a look: with the seventh, two looks have failed.
    await until('two looks to fail', () => triesAway >= 7);
    await place.enqueue('two');
    isAway = false;
    await reaches(2);
    await until('the end of it to be told', () => /again\n.*again\n/.test(told()));
    interrupt.abort();
    const { code, err } = await ended;
    t.equal(code, 0);
    t.match(
      err,
      /^leasehold: the server could not be reached: .*, trying again\nleasehold: the server answers again\n$/,
    );

    isAway = true;
    t.match(await leasehold(`work watch --url http://127.0.0.1:${port}`, { environment }), { code: 3, out: '' });
  },
);

t.test('stats --watch prints a line each time; whoever has read enough ends it, and SIGINT does', async (t) => {
  const server = await testServer(t);
  const { environment } = await watching(t, server);
  const head = await inShell('leasehold stats --watch --interval-ms 100 --json | head -n 2', environment);
  t.match(head, { code: 0, err: '' });
  t.equal(head.out.trim().split('\n').length, 2);
  const interrupted = await inShell(
    `exec 3< <(exec '${process.execPath}' src/cli/leasehold.ts stats --watch --interval-ms 100); read -r line <&3
     kill -INT $!; wait $!; echo "$? $line"`,
    environment,
  );
  t.match(interrupted, { out: /^0 depth 0, pending 0, workers polling 0, oldest -\n$/, err: '' });
});
