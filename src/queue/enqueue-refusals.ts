import type { EnqueueRequest } from './enqueue.ts';
import type { EnqueueRow } from './enqueue-statement.ts';
import { environmentNotFound, QueueError } from './errors.ts';

/** Its request id is. With one request `where` is empty, and there is no index to tell. */
export function taken({ requestId }: EnqueueRequest, index: number, where: string): QueueError {
  const message = `${where}request_id ${JSON.stringify(requestId)} is known for another session or kind`;
  return new QueueError('conflict', message, where === '' ? {} : { details: { index } });
}

/** Of the first request that was refused; `whereOf` names a request in its call. */
export function refusalOf(
  rows: readonly EnqueueRow[],
  requests: readonly EnqueueRequest[],
  whereOf: (index: number) => string,
): QueueError | undefined {
  const index = rows.findIndex(({ verdict }) => !['known', 'covered', 'new'].includes(verdict));
  const request = requests[index];
  if (request === undefined) return undefined;
  const { environmentId } = request;
  const where = whereOf(index);
  switch (rows[index]?.verdict) {
    case 'environment_archived':
      return new QueueError(
        'environment_archived',
        `${where.replace(/\.$/, ': ')}environment ${environmentId} is archived: it takes no new work`,
      );
    case 'kind_refused':
      return new QueueError(
        'invalid_request',
        `${where}kind ${request.kind} cannot be enqueued for a self_hosted environment: its outputs are not here`,
      );
    case 'taken':
      return taken(request, index, where);
    default:
      return environmentNotFound(environmentId);
  }
}
