import { QueueError } from '../../queue/errors.ts';

type ConfigBody = {
  readonly type: 'self_hosted' | 'cloud';
  readonly networking?: unknown;
  readonly packages?: unknown;
};

/** A customer's machine is the customer's: its network and packages are not ours to set. Refuses: invalid_request. */
export function environmentTypeOf(config: ConfigBody | null | undefined): 'self_hosted' | 'cloud' | undefined {
  if (config?.type !== 'self_hosted') return config?.type;
  for (const field of ['networking', 'packages'] as const) {
    if (config[field] !== undefined && config[field] !== null) {
      throw new QueueError('invalid_request', `config.${field} does not go with config.type self_hosted`);
    }
  }
  return config.type;
}
