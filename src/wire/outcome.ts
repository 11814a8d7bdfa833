import { type Static, Type } from 'typebox';
import { OUTCOMES, type Outcome } from '../queue/details.ts';
import { LIMITS } from '../queue/limits.ts';
import type { Report, Reported } from '../queue/outcome.ts';
import type { Released } from '../queue/release.ts';
import { Nullable } from './primitives.ts';

const ENDS = ['queued', 'stopped'] as const;
const oneOf = <T extends string>(values: readonly T[], description: string) =>
  Type.Unsafe<T>({ type: 'string', enum: [...values], description });

const ReleaseFields = Type.Object(
  {
    delay_ms: Type.Optional(
      Type.Integer({ minimum: 0, maximum: LIMITS.delayMs, description: 'Not handed out before; default 0' }),
    ),
  },
  { additionalProperties: false },
);
export const ReleaseBody = Nullable<Static<typeof ReleaseFields>>(ReleaseFields);

export const WorkRelease = Type.Object({
  type: Type.Literal('work_release'),
  state: oneOf(ENDS, '`stopped`: it was to end, or had ended'),
});

export const toWorkRelease = ({ state }: Released): Static<typeof WorkRelease> => ({ type: 'work_release', state });

export const OutcomeBody = Type.Object(
  {
    status: oneOf<Outcome>(OUTCOMES, 'What became of it'),
    result: Type.Optional(
      Type.Unknown({
        description: `Of what succeeded: any JSON value of at most ${LIMITS.inputBytes} bytes and ${LIMITS.inputLevels} levels`,
      }),
    ),
    error: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.errorCharacters,
        description: 'Of what failed: kept as last_error',
      }),
    ),
    final: Type.Optional(Type.Boolean({ description: 'Of what failed: it is set aside, and not tried again' })),
  },
  { additionalProperties: false },
);

export const toReport = ({ status, result, error, final }: Static<typeof OutcomeBody>): Report => ({
  ...{ status, result, error, isFinal: final },
});

export const WorkOutcome = Type.Object({
  type: Type.Literal('work_outcome'),
  status: oneOf<Outcome>(OUTCOMES, 'As it was said'),
  state: oneOf(ENDS, '`queued`: it is tried again later'),
});

export const toWorkOutcome = ({ status, state }: Reported): Static<typeof WorkOutcome> => ({
  ...{ type: 'work_outcome', status, state },
});

export const WorkResult = Type.Object({
  result: Type.Unknown({ description: 'As its holder left it; null without one' }),
});
