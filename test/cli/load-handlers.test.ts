import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { UsageError } from '../../src/cli/command.ts';
import { loadHandlers, makeRunner } from '../../src/cli/load-handlers.ts';
import { QueueError } from '../../src/index.ts';
import { testFolder } from '../support/process.ts';

const BOTH = '{ handlers: { tool_exec() {} }, onReclaimed: () => "done" }';

t.test('handlers are found in whatever way a module exports them', async (t) => {
  const folder = testFolder(t);
  const cells: [file: string, text: string][] = [
    ['named.mjs', 'export const handlers = { tool_exec() {} }; export const onReclaimed = () => "done";'],
    ['default.ts', 'export default { tool_exec(): void {} }; export const onReclaimed = (): string => "done";'],
    ['whole.mjs', `export default ${BOTH};`],
    ['all.cjs', `module.exports = ${BOTH};`],
    ['each.cjs', 'exports.handlers = { tool_exec() {} }; exports.onReclaimed = () => "done";'],
  ];
  for (const [name, text] of cells) {
    const file = join(folder, name);
    writeFileSync(file, text);
    t.match(await loadHandlers(file), { handlers: { tool_exec: Function }, onReclaimed: Function }, name);
  }
});

t.test('what is wrong with an option is not said of the module', async (t) => {
  const said = (message: string) => {
    try {
      makeRunner('x.ts', () => {
        throw new QueueError('invalid_request', message);
      });
    } catch (error) {
      return error instanceof UsageError && error.problems;
    }
  };
  t.strictSame(said('workerId must be printable'), ['workerId must be printable']);
  t.strictSame(said('handlers must have one'), ['--handlers x.ts: handlers must have one']);
});
