import { createServer } from 'node:http';
import type { Test } from 'tap';
import { listenOnLoopback } from './loopback.ts';

export type OtlpReceiver = {
  readonly url: string;
  readonly received: { path: string; contentType: string; body: Buffer }[];
  /** What it answers, 200 unless a test says otherwise. */
  status: number;
};

/** An OTLP/HTTP receiver that takes everything. `answers: false`: it takes the request and never says a word. */
export async function otlpReceiver(t: Test, { answers = true } = {}): Promise<OtlpReceiver> {
  const receiver: OtlpReceiver = { url: '', received: [], status: 200 };
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { url: path = '', headers } = request;
    receiver.received.push({ path, contentType: headers['content-type'] ?? '', body: Buffer.concat(chunks) });
    if (answers) response.writeHead(receiver.status, { 'content-type': headers['content-type'] }).end();
  });
  return Object.assign(receiver, { url: `http://127.0.0.1:${await listenOnLoopback(t, server)}` });
}

type DataPoint = {
  asInt?: number | string;
  asDouble?: number;
  attributes: { key: string; value: { stringValue: string } }[];
};
type Metric = { name: string; gauge: { dataPoints: DataPoint[] } };

/** The points of an OTLP/JSON body: by metric, `attribute=value: number`. */
export function pointsOf(body: Buffer): Record<string, string[]> {
  const { resourceMetrics } = JSON.parse(body.toString());
  const metrics: Metric[] = resourceMetrics.flatMap((resource: { scopeMetrics: { metrics: Metric[] }[] }) =>
    resource.scopeMetrics.flatMap((scope) => scope.metrics),
  );
  const point = ({ attributes, asInt, asDouble }: DataPoint) =>
    `${attributes.map(({ key, value }) => `${key}=${value.stringValue}`).join()}: ${Number(asInt ?? asDouble)}`;
  return Object.fromEntries(metrics.map(({ name, gauge }) => [name, gauge.dataPoints.map(point).sort()]));
}
