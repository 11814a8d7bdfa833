import { readFileSync } from 'node:fs';
import t from 'tap';
import { UsageError } from '../../src/cli/command.ts';
import { parseCommand } from '../../src/cli/program.ts';
import { VERSION } from '../../src/version.ts';

const RUNNER = {
  name: 'runner',
  handlers: 'handlers.ts',
  ...{ concurrency: undefined, ttlSeconds: undefined, stallSeconds: undefined, graceSeconds: undefined },
  workerId: undefined,
};

t.test('what is understood', async (t) => {
  const cells: [args: string[], command: object][] = [
    [[], { name: 'serve' }],
    [['serve'], { name: 'serve' }],
    [['runner', '--handlers', 'handlers.ts'], RUNNER],
    [
      ['runner', '--handlers=handlers.ts', '--concurrency', '1000', '--stall-seconds', '0', '--grace-seconds', '0'],
      { ...RUNNER, concurrency: 1_000, stallSeconds: 0, graceSeconds: 0 },
    ],
    [
      ['runner', '--ttl-seconds', '86400', '--worker-id', 'me', '--handlers', 'handlers.ts'],
      { ...RUNNER, ttlSeconds: 86_400, workerId: 'me' },
    ],
    [
      ['worker', '--handlers', 'handlers.ts', '--key', 'a key', '--concurrency', '2'],
      { ...RUNNER, name: 'worker', url: 'http://127.0.0.1:8080', key: 'a key', concurrency: 2 },
    ],
    [['--version'], { name: 'tell', text: `${VERSION}\n` }],
  ];
  for (const [args, command] of cells) t.strictSame(parseCommand(args), command, args.join(' '));

  const runs = [
    'migrate',
    'environments list --all --limit 1000 --page x --json --url http://localhost',
    'environments create production --type cloud --description x --metadata a=b --metadata c=d=e --quiet',
    'environments show production',
    'environments update production --name other --metadata a=',
    'environments archive production',
    'environments delete production',
    'keys issue workers -e production --expires-in-seconds 1 --min-queued-age-ms 0 -q',
    'keys issue dashboard --api --role read_only',
    'keys list --api',
    'keys rotate key_x --overlap-seconds 0',
    'keys revoke key_x --api',
    'enqueue session-1 --kind model_turn --input null --priority -100 --not-before x --max-hand-outs 1',
    'enqueue session-1 --input-file input.json --max-attempts 3 --request-id x --follow-up --environment env_x',
    'work list --state queued active --state stopped --kind tool_exec --reason failed --outcome failed succeeded --session a b --worker c',
    'work show work_x',
    'work history work_x',
    'work result work_x',
    'work stop work_x --force',
    'work requeue work_x -q',
    'work watch --state queued --limit 3 --interval-ms 100',
    'work watch --id work_x',
    'stats --watch --interval-ms 3600000',
    'workers',
    'diagnosis --json',
    'locks list -e production --limit 1000 --page x',
    'locks release a:name --token 7',
    'settings --set max_hand_outs=3 --set retention_days=default',
    'pause',
    'resume -e production',
    'doctor --url http://localhost --json',
  ];
  for (const line of runs) t.match(parseCommand(line.split(' ')), { name: 'run' }, line);
});

t.test('what is wrong is named, all of it', async (t) => {
  const runner = (...args: string[]) => ['runner', '--handlers', 'handlers.ts', ...args];
  const cells: [args: string[] | string, problems: RegExp[]][] = [
    [['walk'], [/^unknown command 'walk' \(Did you mean work\?\)$/]],
    [['serve', '--port', '80'], [/--port/]],
    [['--port', '80'], [/--port/]],
    [['serve', 'here'], [/here/]],
    [['worker'], [/^--handlers must name a module$/, /^ANTHROPIC_ENVIRONMENT_KEY, or --key, must be/]],
    [['worker', '--handlers', 'x', '--key', 'k', '--ttl-seconds', '0'], [/^--ttl-seconds/]],
    [
      ['worker', '--handlers', 'x', '--key', 'k', '--url', 'here'],
      [/^LEASEHOLD_URL, or --url, must be a URL that starts/],
    ],
    [['runner'], [/^--handlers must name a module$/]],
    [['runner', '--handlers', ''], [/^--handlers must name a module$/]],
    [['runner', '--handlers'], [/--handlers .*missing/]],
    [['runner', 'handlers.ts'], [/handlers\.ts/]],
    [runner('--handler', 'x'), [/--handler'/]],
    [runner('--worker-id', ''), [/^--worker-id must not be empty$/]],
    [
      ['runner', '--concurrency', '1001', '--ttl-seconds', '0', '--stall-seconds', '1e2', '--grace-seconds', '1.5'],
      [
        /^--handlers must /,
        /^--concurrency must be an integer from 1 to 1000, got "1001"$/,
        /^--ttl-seconds must be an integer from 1 to 86400, got "0"$/,
        /^--stall-seconds must be an integer from 0 to 86400, got "1e2"$/,
        /^--grace-seconds must be an integer from 0 to 86400, got "1.5"$/,
      ],
    ],
    ['work', [/^work needs a command: list, show, history, result, stop, requeue, watch$/]],
    ['work lst', [/^unknown command 'lst' \(Did you mean list\?\)$/]],
    ['work show', [/^missing required argument 'work_id'$/]],
    ['work list --state asleep', [/--state .*'asleep' is invalid. Allowed choices are queued, starting/]],
    ['work list --limit 1001', [/^--limit must be an integer from 1 to 1000, got "1001"$/]],
    ['work watch --id work_x --state queued', [/--id .*cannot be used with .*--state/]],
    ['environments create', [/'name'/]],
    ['environments create x --type cluod', [/--type .*self_hosted, cloud/]],
    ['environments create x --json --quiet', [/--quiet.* cannot be used with .*--json/]],
    ['keys issue x --role read_only', [/^--role is for API keys: it goes with --api$/]],
    ['keys issue x --api --min-queued-age-ms 1', [/^--min-queued-age-ms is for environment keys/]],
    ['keys list --api -e production', [/--api.* cannot be used with .*--environment/]],
    [
      'enqueue x --metadata a --metadata =b --input {] --priority 101 --max-attempts 0',
      [
        /--metadata must be key=value, got "a"/,
        /got "=b"/,
        /^--input must be JSON: /,
        /^--priority /,
        /^--max-attempts /,
      ],
    ],
    ['enqueue x --input 1 --input-file -', [/--input.* cannot be used with/]],
    ['enqueue x --api-key secret', [/--api-key/]],
    ['settings --set retention_days', [/^--set must be name=number, or name=default, got "retention_days"$/]],
    ['completion fish', [/'fish' is invalid.* Allowed choices are bash, zsh/]],
  ];
  for (const [given, problems] of cells) {
    const args = typeof given === 'string' ? given.split(' ') : given;
    try {
      parseCommand(args);
      t.fail(`${args} was understood`);
    } catch (error) {
      t.ok(error instanceof UsageError, args.join(' '));
      t.match(error, { problems });
      t.equal((error as UsageError).problems.length, problems.length, args.join(' '));
    }
  }
});

const helpOf = (...args: string[]): string => {
  const told = parseCommand([...args, '--help']);
  return told.name === 'tell' ? told.text : `it is ${told.name}`;
};

/** What a help text lists as commands. */
const listedIn = (help: string): string[] =>
  [...help.matchAll(/^ {2}([a-z]+)(?= |$)/gm)]
    .map(([, name]) => name ?? '')
    .filter((name) => !['help', 'leasehold'].includes(name));

t.test('each command has a help with examples, and each example is understood', async (t) => {
  process.env.ANTHROPIC_ENVIRONMENT_KEY = 'a key'; // in no example: every user of the machine could read it
  t.teardown(() => delete process.env.ANTHROPIC_ENVIRONMENT_KEY);
  const names = listedIn(helpOf());
  t.ok(names.includes('serve') && names.includes('doctor'));
  t.match(helpOf(), /LEASEHOLD_API_KEY.*0 done, 1 refused or failed, 2 wrong use, 3 server out of reach/s);
  for (const args of [['-h'], ['help'], ['help', 'work'], ['serve', '-h']])
    t.match(parseCommand(args), { name: 'tell' });
  for (const name of names) {
    const below = /\[command\]/.test(helpOf(name).split('\n')[0] ?? '') ? listedIn(helpOf(name)) : undefined;
    for (const path of below?.map((sub) => [name, sub]) ?? [[name]]) {
      const help = helpOf(...path);
      t.match(help, new RegExp(`^Usage: leasehold ${path.join(' ')}`), path.join(' '));
      const examples = [...(help.split('\nExamples:')[1] ?? '').matchAll(/leasehold (.*)$/gm)].map(
        ([, line]) => line ?? '',
      );
      t.ok(examples.length > 0, `${path.join(' ')} has examples`);
      for (const example of examples) {
        const words = wordsOf(example);
        t.strictSame(words.slice(0, path.length), path, example);
        t.doesNotThrow(() => parseCommand(words), example);
      }
    }
  }
});

/** As a shell would read it, up to what it does with the output. */
const wordsOf = (line: string): string[] =>
  [...line.replace(/( \||\)| >).*$/, '').matchAll(/'([^']*)'|(\S+)/g)].map(
    ([, quoted, plain]) => quoted ?? plain ?? '',
  );

t.test('the version is that of the package', async (t) => {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
  t.equal(VERSION, version);
});
