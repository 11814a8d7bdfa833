#!/usr/bin/env node
/** The command `leasehold`. A checkout runs from its sources; the package has only what was built of them. */
import { existsSync } from 'node:fs';

if (Number.parseInt(process.versions.node, 10) < 24) {
  process.stderr.write(
    `leasehold: it needs Node 24 or later, and this is ${process.versions.node}: npm install node@24 brings one, for npx and npm scripts\n`,
  );
  process.exit(1);
}
const source = new URL('../src/cli/leasehold.ts', import.meta.url);
await import(existsSync(source) ? source.href : '../dist/src/cli/leasehold.js');
