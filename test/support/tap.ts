import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** Builds tap's test class (its plugins differ from the shipped ones) and answers the path of tap's runner. */
export function buildTap(): string {
  const require = createRequire(import.meta.url);
  const tap = join(
    dirname(require.resolve('@tapjs/run/package.json', { paths: [require.resolve('tap/package.json')] })),
    'dist/esm/index.js',
  );
  const built = spawnSync(process.execPath, [tap, 'build'], { stdio: ['ignore', 'ignore', 'inherit'] });
  if (built.status !== 0) process.exit(built.status ?? 1);
  return tap;
}
