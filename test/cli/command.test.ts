import t from 'tap';
import { parseCommand, UsageError } from '../../src/cli/command.ts';

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
    [['--help'], { name: 'help' }],
    [['-h'], { name: 'help' }],
    [['help'], { name: 'help' }],
    [['serve', '-h'], { name: 'help' }],
    [['runner', '--help'], { name: 'help' }],
    [['runner', '--handlers', 'handlers.ts'], RUNNER],
    [
      ['runner', '--handlers=handlers.ts', '--concurrency', '1000', '--stall-seconds', '0', '--grace-seconds', '0'],
      { ...RUNNER, concurrency: 1_000, stallSeconds: 0, graceSeconds: 0 },
    ],
    [
      ['runner', '--ttl-seconds', '86400', '--worker-id', 'me', '--handlers', 'handlers.ts'],
      { ...RUNNER, ttlSeconds: 86_400, workerId: 'me' },
    ],
  ];
  for (const [args, command] of cells) t.strictSame(parseCommand(args), command, args.join(' '));
});

t.test('what is wrong is named, all of it', async (t) => {
  const runner = (...args: string[]) => ['runner', '--handlers', 'handlers.ts', ...args];
  const cells: [args: string[], problems: RegExp[]][] = [
    [['walk'], [/^there is no command "walk": it is serve or runner$/]],
    [['serve', '--port', '80'], [/--port/]],
    [['--port', '80'], [/--port/]],
    [['serve', 'here'], [/here/]],
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
  ];
  for (const [args, problems] of cells) {
    try {
      parseCommand(args);
      t.fail(`${args} was understood`);
    } catch (error) {
      t.ok(error instanceof UsageError, args.join(' '));
      t.match(error, { problems });
      t.equal((error as UsageError).problems.length, problems.length);
    }
  }
});
