import type { ToolUse } from './open-call.ts';

export type ToolCallOptions = {
  /** For the whole call; default: none, it waits until a worker has answered, whenever one comes. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** `ask`: no worker runs it before a `user.tool_confirmation` allows it. Default allow. */
  readonly evaluatedPermission?: 'allow' | 'ask' | 'deny';
};

const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/** A misspelt one would run without asking. */
const OPTIONS: ReadonlySet<string> = new Set(['timeoutMs', 'signal', 'evaluatedPermission']);

/** The event of a call. Throws TypeError for what is misused. */
export function toToolUse(name: string, input: ToolUse['input'], options: ToolCallOptions): ToolUse {
  const unknown = Object.keys(options).find((option) => !OPTIONS.has(option));
  if (unknown !== undefined) throw new TypeError(`${unknown} is no option: there are ${[...OPTIONS].join(', ')}`);
  const { timeoutMs, evaluatedPermission: permission } = options;
  if (typeof name !== 'string' || name === '') throw new TypeError('name must be the name of a tool');
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw new TypeError('input must be an object');
  if (timeoutMs !== undefined && !(typeof timeoutMs === 'number' && timeoutMs > 0 && timeoutMs <= TIMEOUT_MS_MAX)) {
    throw new TypeError(`timeoutMs must be a number above 0 and at most ${TIMEOUT_MS_MAX}`);
  }
  if (permission !== undefined && !PERMISSIONS.includes(permission)) {
    throw new TypeError(`evaluatedPermission must be one of ${PERMISSIONS.join(', ')}`);
  }
  return {
    type: 'agent.tool_use',
    name,
    input,
    ...(permission === undefined ? {} : { evaluated_permission: permission }),
  };
}

const PERMISSIONS: readonly unknown[] = ['allow', 'ask', 'deny'];
