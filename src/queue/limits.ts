import { QueueError } from './errors.ts';

/** Every limit on what a caller may send, with its unit in the name (contract §7). */
export const LIMITS = {
  metadataPairs: 16,
  metadataKeyCharacters: 64,
  metadataValueCharacters: 512,
  idCharacters: 70,
  sessionIdCharacters: 256,
  workerIdCharacters: 256,
  nameCharacters: 128,
  descriptionCharacters: 2_048,
  requestIdCharacters: 200,
  inputBytes: 262_144,
  /** What is written again later, and may then stand on a fuller stack, must not be at its limit now. */
  inputLevels: 1_000,
  itemsPerCall: 1_000,
  priority: 100,
  handOuts: 1_000_000,
  attempts: 1_000_000,
  /** Of what is kept of a failure; the rest is cut off. */
  errorCharacters: 2_000,
  leaseTtlSeconds: 86_400,
  retentionDays: 36_500,
  heartbeatTokenCharacters: 64,
  blockMs: 999,
  reclaimOlderThanMs: 600_000,
  /** Live ones: neither revoked nor expired. As many API keys. */
  keysPerEnvironment: 1_000,
  keySeconds: 315_360_000,
  keySecondsDefault: 31_536_000,
  overlapSeconds: 2_592_000,
  overlapSecondsDefault: 3_600,
  minQueuedAgeMs: 86_400_000,
  fallbackAfterMs: 86_400_000,
  delayMs: 86_400_000,
  pageItems: 1_000,
  pageItemsDefault: 20,
  filters: 16,
  tokenCharacters: 512,
  titleCharacters: 512,
  agentBytes: 262_144,
  eventsPerCall: 1_000,
  openCalls: 1_000,
  toolNameCharacters: 128,
  lockNameCharacters: 256,
  lockOwnerCharacters: 256,
  lockSeconds: 3_600,
  lockSecondsDefault: 60,
  /** Of what a page reads at once, unless a single event is larger. */
  eventBytesPerRead: 8_388_608,
} as const;

const LONE_SURROGATE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/;

/** True when Postgres can store the text and give it back the same: no NUL, no unpaired surrogate. */
export const isStorable = (text: unknown): text is string =>
  typeof text === 'string' && !text.includes('\0') && !LONE_SURROGATE.test(text);

/** Length in code points, as JSON Schema counts. */
export const characters = (text: string): number => {
  let count = 0;
  for (const _ of text) count++;
  return count;
};

/** A text of the caller's. Refuses: invalid_request, naming the field and the rule. */
export function checkText(field: string, value: unknown, charactersMax: number): void {
  if (typeof value !== 'string' || !isStorable(value) || value === '' || characters(value) > charactersMax) {
    throw new QueueError(
      'invalid_request',
      `${field} must be a string of 1 to ${charactersMax} characters, without NUL or unpaired surrogates`,
    );
  }
}

const INSTANT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-](0\d|1[0-4]):[0-5]\d)$/;

/** An RFC 3339 instant that Postgres takes, too: February 30 and the year 0 read as dates in JavaScript only. */
export function isInstant(text: string): boolean {
  const [, clock] = INSTANT.exec(text) ?? [];
  if (clock === undefined || clock < '0001') return false;
  const milliseconds = Date.parse(`${clock}Z`);
  return Number.isFinite(milliseconds) && new Date(milliseconds).toISOString().startsWith(clock);
}

/** An integer of the caller's. Refuses: invalid_request, naming the field and the range. */
export function checkInteger(field: string, value: unknown, min: number, max: number): void {
  if (!Number.isSafeInteger(value) || Number(value) < min || Number(value) > max) {
    throw new QueueError('invalid_request', `${field} must be an integer from ${min} to ${max}`);
  }
}

/** What is wrong with the pairs that are to be set, each in a sentence of its own (contract §7). */
export function metadataProblems(pairs: Readonly<Record<string, unknown>>): string[] {
  const problems: string[] = [];
  for (const [key, value] of Object.entries(pairs)) {
    const length = characters(key);
    if (length < 1 || length > LIMITS.metadataKeyCharacters) {
      problems.push(`metadata key ${JSON.stringify(key)} must have 1 to ${LIMITS.metadataKeyCharacters} characters`);
    }
    if (typeof value !== 'string') {
      problems.push(`metadata.${key} must be a string`);
    } else if (characters(value) > LIMITS.metadataValueCharacters) {
      problems.push(`metadata.${key} must have at most ${LIMITS.metadataValueCharacters} characters`);
    }
    if (!isStorable(key) || (typeof value === 'string' && !isStorable(value))) {
      problems.push(`metadata.${JSON.stringify(key)} must not hold NUL or unpaired surrogates`);
    }
  }
  return problems;
}

export const tooManyPairs = (pairs: number): string =>
  `metadata must have at most ${LIMITS.metadataPairs} pairs, this would make ${pairs}`;

/** One refusal that lists every problem. */
export const invalidMetadata = (problems: readonly string[]): QueueError =>
  new QueueError('invalid_metadata', problems.join('; '), { details: { error_code: 'invalid_metadata', problems } });

/** Metadata that is given whole, at enqueue or with an environment; `where` names whose. Refuses: invalid_metadata. */
export function checkMetadata(metadata: Readonly<Record<string, unknown>>, where = ''): void {
  if (typeof metadata !== 'object' || Array.isArray(metadata)) {
    throw invalidMetadata([`${where}metadata must be an object`]);
  }
  const problems = metadataProblems(metadata);
  const pairs = Object.keys(metadata).length;
  if (pairs > LIMITS.metadataPairs) problems.push(tooManyPairs(pairs));
  if (problems.length > 0) throw invalidMetadata(problems.map((problem) => where + problem));
}

/** Where a value stands in another: its path is only put together when it is asked for, since a body may hold millions. */
type Place = { readonly value: unknown; readonly key: string | number; readonly outer: Place | undefined };

function pathOf(place: Place | undefined): string {
  const keys: (string | number)[] = [];
  for (let at = place; at?.outer !== undefined; at = at.outer) keys.push(at.key);
  return keys.reverse().join('.');
}

/** The path of a text, key or value, that Postgres could not give back the same. Not recursive: JSON may nest as it likes. */
export function findUnstorable(root: unknown, name: string): string | undefined {
  const left: Place[] = [{ value: root, key: '', outer: undefined }];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { value } = next;
    if (typeof value === 'string' && !isStorable(value)) return pathOf(next) || name;
    if (!isRecord(value)) continue;
    for (const key of keysOf(value)) {
      if (typeof key === 'string' && !isStorable(key)) return `a key of ${pathOf(next) || name}`;
      const inner = value[key];
      if (isRecord(inner) || (typeof inner === 'string' && !isStorable(inner)))
        left.push({ value: inner, key, outer: next });
    }
  }
  return undefined;
}

/** Whether a JSON value nests deeper than so many levels: a text has none. Not recursive. */
export function isDeeper(root: unknown, levels: number): boolean {
  const left: [level: number, value: unknown][] = [[1, root]];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const [level, value] = next;
    if (!isRecord(value)) continue;
    if (level > levels) return true;
    for (const inner of Object.values(value)) if (isRecord(inner)) left.push([level + 1, inner]);
  }
  return false;
}

/** Of a list its numbers: as texts, those of a long one take more time and memory than the list. */
export const keysOf = (value: object): Iterable<string | number> =>
  Array.isArray(value) ? value.keys() : Object.keys(value);

export const isRecord = (value: unknown): value is Record<string | number, unknown> =>
  typeof value === 'object' && value !== null;
