import { trace } from '@opentelemetry/api';
import type { TraceContext } from '../queue/items.ts';

const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;
const TRACESTATE = /^[\x20-\x7e]{1,512}$/;

/** The active span's context in W3C form, undefined without one (contract §9). */
export function activeTraceContext(): TraceContext | undefined {
  const span = trace.getActiveSpan()?.spanContext();
  if (span === undefined) return undefined;
  const flags = span.traceFlags.toString(16).padStart(2, '0');
  return parseTraceContext(`00-${span.traceId}-${span.spanId}-${flags}`, span.traceState?.serialize());
}

/** A request's `traceparent` and `tracestate`; what is not well-formed is passed over, never refused. */
export function parseTraceContext(traceparent: unknown, tracestate: unknown): TraceContext | undefined {
  if (typeof traceparent !== 'string' || !TRACEPARENT.test(traceparent)) return undefined;
  return typeof tracestate === 'string' && TRACESTATE.test(tracestate) ? { traceparent, tracestate } : { traceparent };
}
