import { chmodSync, closeSync, fsyncSync, openSync, renameSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { createEnvironment } from './control/environments.ts';
import { mintApiKey, mintEnvironmentKey } from './control/key-rows.ts';
import { hasApiKey, issueKey } from './control/keys.ts';
import { type Database, IN_MEMORY } from './db/connect.ts';

/** Where PGlite's first start keeps its keys, mode 0600, in the data folder. */
export const KEYS_FILE = 'keys.json';

const FIRST_ENVIRONMENT = 'default';

export type FirstKeys = { environmentId: string; environmentKey: string; apiKey: string };

/**
 * On an empty embedded database: an environment with its key, and an API key, kept in a file of the data folder. Postgres gets
 * nothing unasked. Undefined when there was something already. The API key is issued last: a start that finds none
 * begins anew, whatever a crash left of the one before.
 */
export async function prepareFirstStart(database: Database, dataDir: string): Promise<FirstKeys | undefined> {
  if (database.engine !== 'pglite') return undefined;
  if (await hasApiKey(database)) return undefined;

  const live = database.kysely.selectFrom('environments').select('id').where('archived_at', 'is', null);
  const [orphan] = await database.rows(live.where('name', '=', FIRST_ENVIRONMENT));
  const { id: environmentId } =
    orphan ?? (await createEnvironment(database, { name: FIRST_ENVIRONMENT, type: 'self_hosted' }));
  const keys: FirstKeys = { environmentId, environmentKey: mintEnvironmentKey(), apiKey: mintApiKey() };
  // The file first: a key that is valid but written nowhere would be lost for good.
  if (dataDir !== IN_MEMORY) writePrivate(join(dataDir, KEYS_FILE), `${JSON.stringify(keys, null, 2)}\n`);
  await issueKey(database, { environmentId, name: 'first start', key: keys.environmentKey });
  await issueKey(database, { environmentId: null, name: 'first start', key: keys.apiKey });
  return keys;
}

function writePrivate(path: string, text: string): void {
  const draft = `${path}.new`;
  const file = openSync(draft, 'w', 0o600);
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  chmodSync(draft, 0o600);
  renameSync(draft, path);
}

/** What a newcomer pastes into a second terminal. */
export function firstStartText(
  url: string,
  dataDir: string,
  { environmentId, environmentKey, apiKey }: FirstKeys,
): string {
  const kept = dataDir === IN_MEMORY ? 'nothing is kept' : `the keys are kept in ${join(dataDir, KEYS_FILE)}`;
  return `
Leasehold is ready. This block is shown once; ${kept}.

export LEASEHOLD_URL=${url}
export LEASEHOLD_API_KEY=${apiKey}
export ANTHROPIC_ENVIRONMENT_ID=${environmentId}
export ANTHROPIC_ENVIRONMENT_KEY=${environmentKey}

# put work in
curl -sS -w '\\n' "$LEASEHOLD_URL/control/v1/environments/$ANTHROPIC_ENVIRONMENT_ID/work" \\
  -H "x-api-key: $LEASEHOLD_API_KEY" -H 'content-type: application/json' \\
  -d '{"data":{"type":"session","id":"session-1"}}'

# take it out, as a worker would: it is then reserved for 5 s
curl -sS -w '\\n' "$LEASEHOLD_URL/v1/environments/$ANTHROPIC_ENVIRONMENT_ID/work/poll?block_ms=999" \\
  -H "Authorization: Bearer $ANTHROPIC_ENVIRONMENT_KEY" -H 'Anthropic-Worker-ID: curl'
`;
}
