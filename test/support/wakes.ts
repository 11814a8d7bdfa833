import type { Test } from 'tap';
import { openStreamAt, type StreamOptions } from './event-stream.ts';
import { until } from './harness.ts';

export const eventsPath = (environmentId: string): string => `/control/v1/environments/${environmentId}/events`;

/** Attaches to the events of an environment, and has heard the first of them: that there may be work. */
export async function openWakes(t: Test, url: string, environmentId: string, options: StreamOptions = {}, query = '') {
  const stream = await openStreamAt(t, `${url}${eventsPath(environmentId)}${query}`, options);
  if (stream.status !== 200) return { ...stream, told: () => [], forget() {} };
  await until('the first word', () => stream.events().length > 0);
  let from = 1;
  return {
    ...stream,
    /** What came since the last `forget`, or since the first word. */
    told: () => stream.events().slice(from),
    forget: () => {
      from = stream.events().length;
    },
  };
}
