import type { Attributes, BatchObservableResult, Meter, ObservableGauge } from '@opentelemetry/api';
import type { QueueGauges } from '../queue/stats.ts';

export const GAUGE_DEPTH = 'queue.depth';
export const GAUGE_PENDING = 'queue.pending';
export const GAUGE_WORKERS_POLLING = 'queue.workers_polling';
export const GAUGE_SET_ASIDE = 'queue.set_aside';
export const ATTRIBUTE_ENVIRONMENT_ID = 'environment.id';

/**
 * Observes what `work/stats` says, and what is set aside, of every environment, in one query a collection. A query that fails drops that
 * collection only. Replicas report the same values: read them as max, not as sum. Returns the unregistration, to be called
 * before the database is closed.
 */
export function registerGauges(
  meter: Meter,
  allStats: () => Promise<readonly QueueGauges[]>,
  onFault: (error: unknown, what: string) => void = () => {},
): () => void {
  const depth = meter.createObservableGauge(GAUGE_DEPTH, {
    description: 'Work items that are queued and free to be handed out now',
    unit: '{item}',
  });
  const pending = meter.createObservableGauge(GAUGE_PENDING, {
    description: 'Work items that are handed out and not yet acked, their reservation live',
    unit: '{item}',
  });
  const workersPolling = meter.createObservableGauge(GAUGE_WORKERS_POLLING, {
    description: 'Distinct worker ids seen polling within 30 s',
    unit: '{worker}',
  });
  const setAside = meter.createObservableGauge(GAUGE_SET_ASIDE, {
    description: 'Work items that stopped as exhausted or failed and are still remembered',
    unit: '{item}',
  });
  const gauges: ObservableGauge<Attributes>[] = [depth, pending, workersPolling, setAside];

  const observe = async (result: BatchObservableResult<Attributes>): Promise<void> => {
    let environments: readonly QueueGauges[];
    try {
      environments = await allStats();
    } catch (error) {
      onFault(error, 'a collection of gauges was dropped');
      return;
    }
    for (const stats of environments) {
      const attributes = { [ATTRIBUTE_ENVIRONMENT_ID]: stats.environmentId };
      result.observe(depth, stats.depth, attributes);
      result.observe(pending, stats.pending, attributes);
      result.observe(workersPolling, stats.workersPolling, attributes);
      result.observe(setAside, stats.setAside, attributes);
    }
  };

  meter.addBatchObservableCallback(observe, gauges);
  return () => meter.removeBatchObservableCallback(observe, gauges);
}
