import { type Static, Type } from 'typebox';
import type { ApiCaller, EnvironmentCaller } from '../control/credentials.ts';
import { Key } from './keys.ts';

const { name, environment_id, role, min_queued_age_ms } = Key.properties;

/** Who calls, by the key that was presented. */
export const Caller = Type.Object({
  type: Type.Literal('caller'),
  key_id: Type.String({ description: '`operator`: the key that the process was started with' }),
  name,
  environment_id,
  role,
  min_queued_age_ms,
});

export const toCaller = (caller: ApiCaller | EnvironmentCaller): Static<typeof Caller> => ({
  type: 'caller',
  key_id: caller.keyId,
  name: caller.keyName,
  environment_id: caller.kind === 'api' ? null : caller.environmentId,
  role: caller.kind === 'api' ? caller.role : null,
  min_queued_age_ms: caller.kind === 'api' ? 0 : caller.minQueuedAgeMs,
});
