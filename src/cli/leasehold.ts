#!/usr/bin/env node
/**
 * The command `leasehold`: what there is stands in `src/cli/program.ts`. The server and the runner are `src/main.ts`, which is loaded
 * for them alone: that takes longer than most commands.
 */
import { writeSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { execute } from './execute.ts';

const streams = [process.stdout, process.stderr];
/** Whoever reads may have seen enough (`| head`). What else keeps it from being written, as a full disk, is a failure. */
const onUnread = (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  if (!process.stderr.errored)
    writeSync(process.stderr.fd, `leasehold: what it says cannot be written: ${error.message}\n`);
  process.exit(1);
};
for (const stream of streams) stream.on('error', onUnread);

const exitCode = await execute(
  process.argv.slice(2),
  {
    environment: process.env,
    print: (said) => void process.stdout.write(said),
    tell: (line) => void process.stderr.write(`${line}\n`),
    readInput: () => text(process.stdin),
    interrupted() {
      const interrupt = new AbortController();
      process.once('SIGINT', () => interrupt.abort()); // a second one ends the process
      return interrupt.signal;
    },
  },
  () => {
    for (const stream of streams) stream.off('error', onUnread);
    return import('../main.ts');
  },
);
if (exitCode !== undefined) process.exitCode = exitCode;
