import { spawnSync } from 'node:child_process';
import t from 'tap';
import { SCRIPTS } from '../../src/cli/complete.ts';
import { inShell, leasehold } from '../support/command-line.ts';

const completed = async (line: string): Promise<string[]> =>
  (await leasehold(['complete', '--', ...line.split(' ')])).out.split('\n').slice(0, -1);

t.test('what may stand where the cursor is', async (t) => {
  t.match(await completed(''), ['serve', 'migrate']);
  t.notOk((await completed('')).includes('complete'), 'what is for scripts is not offered');
  t.strictSame(await completed('work '), ['list', 'show', 'history', 'result', 'stop', 'requeue', 'watch', 'help']);
  const options = await completed('work list --');
  for (const option of ['--state', '--json', '--environment', '--help']) t.ok(options.includes(option), option);
  t.strictSame(await completed('work list --state '), ['queued', 'starting', 'active', 'stopping', 'stopped']);
  t.strictSame(await completed('keys issue --role '), ['operator', 'read_only']);
  t.strictSame(await completed('work list --session '), [], 'anything');
  t.strictSame(await completed('completion '), ['bash', 'zsh']);
});

t.test('in bash a word is completed by the script', async (t) => {
  const complete = (...words: string[]) => `COMP_WORDS=(leasehold ${words.join(' ')})
    COMP_CWORD=${words.length}
    COMPREPLY=()
    _leasehold
    echo "\${COMPREPLY[@]}"`;
  const script = [
    'source <(leasehold completion bash)',
    'complete -p leasehold',
    complete('env'),
    complete('work', 'req'),
    complete('work', 'list', '--state', 'st'),
    complete('work', 'list', "''"),
  ];
  const { out, err } = await inShell(script.join('\n'), {});
  t.equal(err, '');
  t.strictSame(out.split('\n'), [
    'complete -o default -F _leasehold leasehold',
    'environments',
    'requeue',
    'starting stopping stopped',
    '',
    '',
  ]);
});

for (const shell of ['bash', 'zsh'] as const) {
  const isMissing = spawnSync(shell, ['-c', 'true']).error !== undefined;
  t.test(`${shell} can read its script`, { skip: isMissing && `${shell} is not installed` }, async (t) => {
    t.match(spawnSync(shell, ['-n'], { input: SCRIPTS[shell], encoding: 'utf8' }), { status: 0, stderr: '' });
  });
}
