import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import type { OtlpProtocol } from '../config.ts';

/**
 * A meter provider that exports over OTLP. The exporters read the standard `OTEL_EXPORTER_OTLP_*` variables (endpoint,
 * headers, timeout, compression) themselves; `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` name the resource.
 */
export async function createOtlpMeterProvider({
  protocol,
  exportIntervalMs,
}: {
  protocol: OtlpProtocol;
  exportIntervalMs: number;
}): Promise<MeterProvider> {
  const { OTLPMetricExporter } =
    protocol === 'http/json'
      ? await import('@opentelemetry/exporter-metrics-otlp-http')
      : await import('@opentelemetry/exporter-metrics-otlp-proto');
  const resource = resourceFromAttributes({ 'service.name': 'leasehold' }).merge(
    detectResources({ detectors: [envDetector] }),
  );
  return new MeterProvider({
    resource,
    readers: [
      new PeriodicExportingMetricReader({
        exporter: new OTLPMetricExporter(),
        exportIntervalMillis: exportIntervalMs,
        exportTimeoutMillis: Math.min(exportIntervalMs, 10_000),
      }),
    ],
  });
}
