import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createControlClient } from '../../src/client/index.ts';
import { commandPlace, leasehold, OPERATOR_KEY } from '../support/command-line.ts';
import { until } from '../support/harness.ts';
import { request, testFolder } from '../support/process.ts';

const INSTANT = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;

const fields = (out: string) => Object.fromEntries(out.split('\n').map((line) => line.split(/ {2,}/, 2)));
const columns = (out: string) =>
  out
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ {2,}/));

t.test('every command against a server, for people and for programs', async (t) => {
  const { server, environment, id, run, json } = await commandPlace(t);
  await run('settings --set reclaim_older_than_ms=600000'); // what is handed out stays so, however busy the machine is

  t.test('environments', async (t) => {
    t.match(await json('environments show production'), { id, type: 'environment', name: 'production' });
    t.match(fields(await run('environments show production')), {
      id,
      name: 'production',
      type: 'self_hosted',
      archived: '-',
    });
    const made = await json('environments create other --type cloud --description x --metadata a=b --metadata c=d=e');
    t.match(made, { config: { type: 'cloud' }, description: 'x', metadata: { a: 'b', c: 'd=e' } });
    const changed = fields(await run(`environments update ${made.id} --name another --metadata a=`));
    t.match(changed, { id: made.id, name: 'another', description: 'x', metadata: 'c=d=e' });
    t.match(await json('environments archive another'), { id: made.id, archived_at: String });
    t.strictSame(
      columns(await run('environments list')).map(([first, name]) => [first, name]),
      [
        ['ID', 'NAME'],
        [id, 'production'],
      ],
    );
    t.strictSame(
      (await json('environments list --all')).data.map((each: { id: string }) => each.id),
      [made.id, id],
    );
    const first = await leasehold('environments list --all --limit 1', { environment });
    t.match(first, { code: 0, err: /^leasehold: there is more: --limit, or --page \S+\n$/ });
    const page = first.err.trim().split(' ').at(-1);
    t.equal(columns(await run(`environments list --all --page ${page}`))[1]?.[0], id);
    t.equal(await run(`environments delete ${made.id}`), `${made.id} is deleted\n`);
  });

  t.test('locks', async (t) => {
    const control = createControlClient({ baseUrl: server.url, apiKey: OPERATOR_KEY });
    const { token } = await control.acquireLock(id, 'summary:42', { owner: 'worker-7' });
    t.match(columns(await run('locks list')), [
      ['NAME', 'OWNER'],
      ['summary:42', 'worker-7', `${token}`],
    ]);
    t.match(await json('locks list'), { data: [{ name: 'summary:42', token }] });
    t.equal(await run(`locks release summary:42 --token ${token + 1}`), 'summary:42 was not held under that token\n');
    t.equal(await run(`locks release summary:42 --token ${token}`), 'summary:42 is released\n');
    t.equal(columns(await run('locks list')).length, 1);
  });

  t.test('keys', async (t) => {
    const issued = fields(await run('keys issue workers --expires-in-seconds 60 --min-queued-age-ms 1'));
    t.match(issued, { key: /^lhe_/, name: 'workers', environment: id, 'min queued age ms': '1' });
    t.equal((await request(`${server.url}/v1/environments/${id}/work/poll`, issued.key ?? '')).status, 200);
    const rotated = (await run(`keys rotate ${issued.id} --overlap-seconds 0 --quiet`)).trim();
    t.match(rotated, /^lhe_[\w-]+$/);
    const listed = await run('keys list');
    t.equal(columns(listed).length, 3);
    t.notOk(listed.includes(rotated), 'no key is listed');
    const { data } = await json('keys list -e production');
    t.strictSame(data.map((key: { hint: string }) => key.hint).includes(rotated.slice(-4)), true);
    const latest = data.find((key: { hint: string }) => key.hint === rotated.slice(-4));
    t.match(fields(await run(`keys revoke ${latest.id}`)), { id: latest.id, revoked: new RegExp(`^${INSTANT}$`) });

    const api = await json('keys issue dashboard --api --role read_only');
    t.match(api, { key: /^lhk_/, role: 'read_only', environment_id: null });
    t.match(await leasehold('pause', { environment: { ...environment, LEASEHOLD_API_KEY: api.key } }), {
      code: 1,
      err: /403/,
    });
    t.match(columns(await run('keys list --api')), [[], [api.id, 'dashboard', /…/, 'read_only']]);
    t.match(await json(`keys rotate ${api.id} --api`), { key: /^lhk_/ });
    t.match(await json(`keys revoke ${api.id} --api`), { id: api.id, revoked_at: String });
  });

  t.test('enqueue and work', async (t) => {
    const file = join(testFolder(t), 'input.json');
    writeFileSync(file, '{"from":"file"}');
    const said = await run([
      ...['enqueue', 'session-1', '--input', '{"a":[1]}', '--metadata', 'team=tools', '--priority', '-3'],
      ...['--not-before', '2020-01-01T00:00:00Z', '--max-hand-outs', '2', '--request-id', 'one'],
    ]);
    const workId = /^(work_\S+) is queued, for session-1\n$/.exec(said)?.[1] ?? '';
    t.equal(await run('enqueue session-1 --request-id one -q'), `${workId}\n`, 'the same item answers');
    const input = async (work: string) =>
      (await request(`${server.url}/control/v1/environments/${id}/work/${work}/input`, OPERATOR_KEY)).json.input;
    t.strictSame(await input(workId), { a: [1] });
    const fromFile = await json(`enqueue session-2 --kind model_turn --max-attempts 3 --input-file ${file}`);
    t.strictSame(await input(fromFile.id), { from: 'file' });
    const piped = await run('enqueue session-3 -q --input-file -', { input: '"stdin"' });
    t.equal(await input(piped.trim()), 'stdin');
    for (const [given, problem] of [
      [{ args: 'enqueue x --input-file /nowhere/at/all' }, /^leasehold: --input-file \/nowhere\/at\/all: ENOENT/],
      [{ args: 'enqueue x --input-file -', input: '{' }, /^leasehold: --input-file - must be JSON/],
    ] as const) {
      t.match(await leasehold(given.args, { environment, ...given }), { code: 2, out: '', err: problem });
    }

    t.match(fields(await run(`work show ${workId}`)), {
      ...{ id: workId, session: 'session-1', lane: 'wire', state: 'queued', metadata: 'team=tools', priority: '-3' },
      ...{ 'not before': '2020-01-01T00:00:00Z', 'hand-outs': '0 of 2', 'stop reason': '-' },
    });
    t.match(await json(`work show ${workId}`), { id: workId, max_hand_outs: 2, not_before: /^2020/ });
    t.strictSame(
      columns(await run('work list --kind tool_exec model_turn --state queued --session session-1 session-2')).map(
        (row) => row[0],
      ),
      ['ID', fromFile.id, workId],
    );
    t.match(await json('work list --limit 1'), { data: [{ id: piped.trim() }], next_page: String });

    const handedOut = await request(`${server.url}/v1/environments/${id}/work/poll`, OPERATOR_KEY);
    t.match(columns(await run(`work history ${handedOut.json.id}`)), [
      ['ID', 'WORKER', 'HANDED OUT', 'ACKED'],
      [handedOut.json.id, '-', new RegExp(INSTANT), '-'],
    ]);
    t.match(await json(`work history ${handedOut.json.id}`), {
      work: { id: handedOut.json.id },
      hand_outs: [{ outcome: null }],
    });
    t.equal(await run(`work stop ${workId}`), `${workId} is stopped\n`);
    t.match(await json(`work stop ${piped.trim()} --force`), {
      id: piped.trim(),
      state: 'stopped',
      stop_reason: 'operator',
    });
    t.match(columns(await run('work list --reason operator')), [
      [],
      [piped.trim(), /./, /./, 'stopped', 'operator'],
      [workId],
    ]);
    t.match(await leasehold(`work stop ${workId}`, { environment }), {
      code: 1,
      out: '',
      err: /^leasehold: .* \(409 conflict_error, req_/,
    });
    t.match(await leasehold(`work requeue ${workId}`, { environment }), { code: 1, err: /409/ });
    t.match(await leasehold(`work result ${workId}`, { environment }), {
      ...{ code: 1, out: '', err: `leasehold: ${workId} is stopped, without a result\n` },
    });
    const claimed = await run('enqueue session-4 -q');
    const control = createControlClient({ baseUrl: server.url, apiKey: OPERATOR_KEY });
    t.match(await request(`${server.url}/v1/environments/${id}/work/poll`, OPERATOR_KEY), {
      json: { id: claimed.trim() },
    });
    await control.releaseWork(id, claimed.trim(), {});
    const later = await request(`${server.url}/v1/environments/${id}/work/poll`, OPERATOR_KEY);
    await control.reportWork(id, later.json.id, {
      status: 'succeeded',
      result: { text: 'naïve', esc: '\u001b\u009b\u2028\u{e0001}' },
    });
    t.equal(
      await run(`work result ${claimed.trim()}`),
      '{\n  "text": "naïve",\n  "esc": "\\u001b\\u009b\\u2028\\udb40\\udc01"\n}\n',
      'by the id that it was enqueued under',
    );
    t.strictSame(await json(`work result ${claimed.trim()}`), {
      result: { text: 'naïve', esc: '\u001b\u009b\u2028\u{e0001}' },
    });
    t.match(fields(await run(`work show ${later.json.id}`)), {
      outcome: 'succeeded',
      result: /work result/,
      attempt: '1',
    });
    t.match(await json('work list --outcome succeeded'), { data: [{ id: later.json.id }] });
    t.match(await leasehold('work show work_nowhere', { environment }), { code: 1, err: /404 not_found_error/ });
  });

  t.test('figures, settings, pause and resume', async (t) => {
    const poll = `${server.url}/v1/environments/${id}/work/poll`;
    await run('enqueue session-9');
    await fetch(poll, { headers: { 'x-api-key': OPERATOR_KEY, 'anthropic-worker-id': 'worker-9' } });
    t.match(fields(await run('stats')), { depth: '0', pending: '1', 'workers polling': '1' });
    t.match(await json('stats'), { type: 'work_queue_stats', pending: 1 });
    t.match(columns(await run('workers')), [
      ['WORKER', 'LAST POLL', 'HOLDS', 'SESSION', 'STATE', 'LEASE EXPIRES'],
      ['worker-9', new RegExp(INSTANT), /^work_/, 'session-9', 'queued', new RegExp(INSTANT)],
    ]);
    t.match(await json('workers'), { data: [{ worker_id: 'worker-9' }] });
    t.match(fields(await run('settings --set max_hand_outs=3 --set lease_ttl_seconds=60')), {
      ...{ environment: id, paused: '-', max_hand_outs: '3 (its own)', lease_ttl_seconds: '60 (its own)' },
      ...{ retention_days: '7', fallback_after_ms: 'none' },
    });
    t.match(await json('settings --set max_hand_outs=default'), {
      settings: { max_hand_outs: null, lease_ttl_seconds: 60 },
    });
    t.match(await json('settings'), { effective: { lease_ttl_seconds: 60 } });
    t.match(fields(await run('pause')), { paused: new RegExp(INSTANT) });
    t.match(await run('diagnosis'), /^paused: .*\n( {2}\w+: .*\n)+/m);
    t.match(await json('diagnosis'), { data: [{ code: 'paused' }] });
    t.match(await json('resume -e production'), { paused_at: null });
    const empty = await leasehold('environments create empty -q', { environment });
    t.equal(await run(`diagnosis -e ${empty.out.trim()}`), 'no problem found\n');
    t.match(await leasehold('settings --set retention=3', { environment }), {
      ...{ code: 1, err: /^leasehold: retention is not a known field \(400 invalid_request_error, req_/ },
    });
  });
});

t.test('what was put back is a new item, and says so', async (t) => {
  const { server, id, run, json } = await commandPlace(t);
  const taken = (await run('enqueue session-1 --max-hand-outs 1 -q')).trim();
  const poll = `${server.url}/v1/environments/${id}/work/poll?reclaim_older_than_ms=1`;
  t.equal((await request(poll, OPERATOR_KEY)).json.id, taken);
  await until('it to be set aside', async () => (await json(`work show ${taken}`)).stop_reason === 'exhausted');
  t.match(await run(`work requeue ${taken}`), new RegExp(`^work_\\S+ is queued, in place of ${taken}\n$`));
});

t.test('text of somebody else’s cannot act on the terminal', async (t) => {
  const { run } = await commandPlace(t);
  const said = await run(['enqueue', 'a\u001b[2Jb\u202e', '--metadata', 'a=\r\u009b']);
  t.match(said, 'for a\\u{1b}[2Jb\\u{202e}\n');
  const interrupt = new AbortController();
  const [watched, ...after] = (
    await run(['work', 'watch'], { interrupted: interrupt.signal, onOutput: () => interrupt.abort() })
  ).split('\n');
  t.strictSame(after, [''], 'one line');
  const listed = `${await run('work list')}${watched}`;
  const shown = await run(['work', 'show', said.split(' ')[0] ?? '']);
  t.match(listed + shown, /a\\u\{1b\}\[2Jb\\u\{202e\}.*a=\\u\{d\}\\u\{9b\}/s);
  for (const character of '\u001b\u202e\r\u009b') t.notOk((listed + shown).includes(character));
});
