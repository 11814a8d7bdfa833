import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import t from 'tap';
import { commandPlace, inShell, leasehold } from '../support/command-line.ts';
import { listenOnLoopback } from '../support/loopback.ts';
import { freePort } from '../support/postgres.ts';

t.test('a server out of reach is 3, a refusal 1, wrong use 2: each in a line on stderr', async (t) => {
  const { server, environment } = await commandPlace(t);
  const nowhere = `http://127.0.0.1:${await freePort()}`;
  const cells: [args: string, environment: Record<string, string>, code: number, err: RegExp][] = [
    [
      'stats',
      { LEASEHOLD_URL: nowhere },
      3,
      /^leasehold: the server could not be reached: connect ECONNREFUSED [\d.:]+\n$/,
    ],
    [`stats --url ${nowhere}`, {}, 3, /^leasehold: the server could not be reached: .*\n$/],
    ['stats', { LEASEHOLD_API_KEY: 'of-nobody-at-all' }, 1, /^leasehold: .* \(401 authentication_error, req_\S+\)\n$/],
    [
      'stats',
      { ANTHROPIC_ENVIRONMENT_ID: 'env_012345678901234567890123' },
      1,
      /^leasehold: .*env_0123.* \(404 not_found_error, req_\S+\)\n$/,
    ],
    [
      'stats -e nowhere',
      {},
      1,
      /^leasehold: there is no environment "nowhere": leasehold environments list tells them\n$/,
    ],
    ['enqueue session-1 --not-before noon', {}, 1, /^leasehold: not_before must be an RFC 3339 instant.* \(400 /],
    [
      'stats',
      { ANTHROPIC_ENVIRONMENT_ID: '' },
      2,
      /^leasehold: --environment, or ANTHROPIC_ENVIRONMENT_ID, must name an environment\n/,
    ],
    ['stats', { LEASEHOLD_API_KEY: '' }, 2, /^leasehold: LEASEHOLD_API_KEY must be set to an API key of the server\n/],
    [
      'stats',
      { LEASEHOLD_API_KEY: '', LEASEHOLD_URL: 'localhost:80' },
      2,
      /^leasehold: LEASEHOLD_URL must be a URL.*\nleasehold: LEASEHOLD_API_KEY must/,
    ],
    [
      'stats -e env_nowhere',
      {},
      1,
      /^leasehold: there is no environment "env_nowhere": leasehold environments list tells them\n$/,
    ],
    [
      'stats --url http://user:hunter2@127.0.0.1',
      {},
      2,
      /^leasehold: --url must be a URL without a user and a password\n/,
    ],
    ['work list --limit 0', {}, 2, /^leasehold: --limit .*\nleasehold work list --help tells how it is called\n$/],
    ['stats --url ftp://x', {}, 2, /^leasehold: --url must be a URL that starts with http/],
  ];
  for (const [args, variables, code, err] of cells) {
    const said = await leasehold(args, { environment: { ...environment, ...variables } });
    t.match(said, { code, out: '', err }, `${args} ${JSON.stringify(variables)}`);
  }
  const shell = await inShell(
    'leasehold stats --url "$NOWHERE"; echo $?; leasehold sats; echo $?; leasehold stats; echo $?',
    {
      ...environment,
      NOWHERE: nowhere,
    },
  );
  t.match(
    shell,
    { out: /^3\n2\ndepth +0\n.*\n0\n$/s, err: /could not be reached.*Did you mean stats/s },
    'the process, too',
  );
  if (existsSync('/dev/full')) {
    t.strictSame(await inShell('leasehold stats > /dev/full', environment), {
      ...{ code: 1, out: '' },
      err: 'leasehold: what it says cannot be written: ENOSPC: no space left on device, write\n',
    });
  }
  server.child.kill('SIGTERM');
  await server.ended();
  t.match(await leasehold('stats', { environment }), { code: 3 });
});

t.test('a front whose server is away is out of reach', async (t) => {
  const front = createServer((_, response) => response.writeHead(502).end('<html>Bad Gateway</html>'));
  const port = await listenOnLoopback(t, front);
  const environment = { LEASEHOLD_URL: `http://127.0.0.1:${port}`, LEASEHOLD_API_KEY: 'any' };
  t.match(await leasehold('environments list', { environment }), {
    code: 3,
    err: /Bad Gateway.*\(502 unknown_error\)/,
  });
});
