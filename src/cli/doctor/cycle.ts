import { ControlError } from '../../client/call.ts';
import { createControlClient } from '../../client/control-client.ts';
import { createWorkClient } from '../../client/work-client.ts';
import { type Check, fail, ok, saying, warn } from './check.ts';
import type { Access } from './server.ts';

const BLOCK_MS = 999;
const REMEDY = 'the log of the server says more, by the request id';
const MAY_LOOK_ALONE = 'a read_only key may look alone: take an API key of the role operator';

/** What an operator and a worker do, from an environment to its end. What it made is removed, also after a failure. */
export async function runCycle({ url: baseUrl, apiKey }: Access): Promise<Check> {
  const name = 'cycle';
  const operator = createWorkClient({ baseUrl, apiKey });
  const control = createControlClient({ baseUrl, apiKey });
  let step = 'create';
  let environmentId: string | undefined;
  const session = `doctor ${crypto.randomUUID()}`;
  let failed: Check | undefined;
  const startedAt = performance.now();
  try {
    const { id } = await operator.createEnvironment({ name: session, description: 'leasehold doctor: may be deleted' });
    environmentId = id;
    step = 'keys issue';
    const { key } = await control.issueEnvironmentKey(id, { name: 'doctor', expires_in_seconds: 300 });
    const worker = createWorkClient({ baseUrl, apiKey: key });
    step = 'enqueue';
    const { id: workId } = await control.enqueueWork(id, { data: { type: 'session', id: session } });
    step = 'poll';
    const handedOut = await worker.pollWork(id, { block_ms: BLOCK_MS });
    if (handedOut?.id !== workId)
      throw new Error(`it was answered ${handedOut?.id ?? 'nothing'} in place of ${workId}`);
    step = 'ack';
    await worker.ackWork(id, workId);
    step = 'heartbeat';
    const beat = await worker.heartbeatWork(id, workId, 'NO_HEARTBEAT');
    if (!beat.lease_extended) throw new Error('the lease was not extended');
    step = 'stop';
    await worker.stopWork(id, workId, { force: true });
  } catch (error) {
    const isForbidden = error instanceof ControlError && error.status === 403;
    failed = fail(name, `${step}: ${saying(error)}`, isForbidden ? MAY_LOOK_ALONE : REMEDY);
  }
  const ms = Math.ceil(performance.now() - startedAt);
  const left = environmentId === undefined ? undefined : await remove(environmentId);
  if (failed !== undefined) return failed;
  if (left !== undefined) {
    return warn(
      name,
      `environment ${environmentId} was left: ${left}`,
      `leasehold environments delete ${environmentId}`,
    );
  }
  return ok(name, `enqueue, poll, ack, heartbeat and stop in ${ms} ms; its environment is deleted`);

  /** Answers what kept it from being removed. */
  async function remove(id: string): Promise<string | undefined> {
    try {
      await control.cancelSession(id, { data: { type: 'session', id: session } });
      await operator.archiveEnvironment(id);
      await operator.deleteEnvironment(id);
      return undefined;
    } catch (error) {
      return saying(error);
    }
  }
}
