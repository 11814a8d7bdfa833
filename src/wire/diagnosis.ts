import { type Static, Type } from 'typebox';
import type { Diagnosis as DiagnosisRecord } from '../queue/diagnosis.ts';
import { type FindingCode, RULES } from '../queue/evidence.ts';
import { Dictionary } from './primitives.ts';
import { WorkQueueStats } from './work.ts';

const { type: _, ...figures } = WorkQueueStats.properties;

export const Diagnosis = Type.Object({
  data: Type.Array(
    Type.Object({
      code: Type.Unsafe<FindingCode>({ type: 'string', enum: Object.keys(RULES) }),
      message: Type.String({ description: 'For a person to read' }),
      evidence: Dictionary<number | string | null>(
        Type.Unsafe<number | string | null>({ type: ['number', 'string', 'null'] }),
        { description: 'Counts, durations with their unit in the name, instants' },
      ),
    }),
    { description: 'Empty: no problem found' },
  ),
  ...figures,
});

export const toDiagnosis = (found: DiagnosisRecord): Static<typeof Diagnosis> => ({
  data: found.findings.map(({ code, message, evidence }) => ({ code, message, evidence })),
  depth: found.depth,
  pending: found.pending,
  oldest_queued_at: found.oldestQueuedAt,
  workers_polling: found.workersPolling,
});
