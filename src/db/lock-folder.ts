import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/**
 * Keeps a second process out of a PGlite folder: two would ruin it. The lock is a file with our process id; one
 * left by a process that is gone (or had our own id before a restart in a container) is taken over.
 * Throws when a live process holds it, or the folder cannot be used. Returns the release.
 */
export function lockFolder(folder: string): () => void {
  const path = join(folder, 'leasehold.pid');
  const draft = `${path}.${process.pid}`;
  try {
    makeFolder(resolve(folder));
    writeFileSync(draft, `${process.pid}\n`, { mode: 0o600 });
  } catch (error) {
    throw new Error(`DATA_DIR ${folder} cannot be used: ${error instanceof Error ? error.message : error}`);
  }
  try {
    // Linked when it is written, so that nobody reads a lock without its holder.
    if (!hasLinked(draft, path)) {
      const holder = Number(readFileSync(path, 'utf8'));
      if (holder !== process.pid && isAlive(holder)) throw inUse(folder, path, holder);
      rmSync(path, { force: true });
      if (!hasLinked(draft, path)) throw inUse(folder, path, Number(readFileSync(path, 'utf8')));
    }
  } finally {
    rmSync(draft, { force: true });
  }
  return () => rmSync(path, { force: true });
}

/** One folder at a time: Node's recursive mkdir never returns where a parent can hold no folders (under /proc, say). */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  mkdirSync(folder, { mode: 0o700 });
}

function hasLinked(draft: string, path: string): boolean {
  try {
    linkSync(draft, path);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}

const inUse = (folder: string, path: string, holder: number): Error =>
  new Error(
    `DATA_DIR ${folder} is in use by process ${holder}: PGlite serves one process (set DATABASE_URL for more). ` +
      `If that is not a Leasehold, remove ${path}`,
  );

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
