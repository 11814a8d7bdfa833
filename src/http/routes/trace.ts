import type { TraceContext } from '../../queue/items.ts';
import { activeTraceContext, parseTraceContext } from '../../telemetry/trace-context.ts';

/** The active span's, or without one the request's (contract §9). */
export const traceContextOf = (headers: Record<string, unknown>): TraceContext | undefined =>
  activeTraceContext() ?? parseTraceContext(headers.traceparent, headers.tracestate);
