import { DiagLogLevel, diag } from '@opentelemetry/api';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AggregationTemporality,
  InstrumentType,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import type { OtlpProtocol } from '../config.ts';

/** Attribute sets a gauge; past the SDK's own 2,000 it would fold environments into one. */
const ENVIRONMENTS_MAX = 50_000;

/**
 * A meter provider that exports over OTLP. The exporters read the standard `OTEL_EXPORTER_OTLP_*` variables (endpoint,
 * headers, timeout, compression) themselves; `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` name the resource.
 */
export async function createOtlpMeterProvider(
  { protocol, exportIntervalMs }: { protocol: OtlpProtocol; exportIntervalMs: number },
  onFault: (error: unknown, what: string) => void,
): Promise<MeterProvider> {
  // The SDK tells of failed exports here and nowhere else.
  const tell = (message: string, ...rest: unknown[]) => onFault(rest[0], `OpenTelemetry: ${message}`);
  const ignore = () => {};
  diag.setLogger(
    { error: tell, warn: tell, info: ignore, debug: ignore, verbose: ignore },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  const { OTLPMetricExporter } =
    protocol === 'http/json'
      ? await import('@opentelemetry/exporter-metrics-otlp-http')
      : await import('@opentelemetry/exporter-metrics-otlp-proto');
  const exporter = new OTLPMetricExporter();
  const preferred = exporter.selectAggregationTemporality.bind(exporter);
  // A cumulative reader goes on exporting the last value of a gauge that was not observed: a dropped collection would be
  // stale values, and an archived environment would stay for ever. On the wire a gauge has no temporality.
  exporter.selectAggregationTemporality = (type) =>
    type === InstrumentType.OBSERVABLE_GAUGE ? AggregationTemporality.DELTA : preferred(type);
  const resource = resourceFromAttributes({ 'service.name': 'leasehold' }).merge(
    detectResources({ detectors: [envDetector] }),
  );
  return new MeterProvider({
    resource,
    readers: [
      new PeriodicExportingMetricReader({
        exporter,
        cardinalityLimits: { observableGauge: ENVIRONMENTS_MAX },
        exportIntervalMillis: exportIntervalMs,
        exportTimeoutMillis: Math.min(exportIntervalMs, 10_000),
      }),
    ],
  });
}
