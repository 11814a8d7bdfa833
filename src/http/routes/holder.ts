import type { FastifyRequest } from 'fastify';
import type { HolderRef } from '../../queue/holder.ts';

type Asked = Pick<FastifyRequest, 'caller'> & { readonly params: { environment_id: string; work_id: string } };

/** The hand-out that a call is about: its token's, or, for an API key, the one that the id names. */
export const holderOf = ({ params, caller }: Asked): HolderRef => ({
  environmentId: params.environment_id,
  id: params.work_id,
  tokenHash: caller?.kind === 'session' ? caller.tokenHash : null,
});
