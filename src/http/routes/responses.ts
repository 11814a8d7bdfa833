import type { TSchema } from 'typebox';
import { ErrorEnvelope } from '../../wire/errors.ts';
import { Component } from '../../wire/primitives.ts';
import type { ERROR_STATUSES } from '../errors.ts';

type Success = Readonly<Record<number, TSchema>>;

/**
 * A route's answers: its own, and the envelope for the refusals that it can give. Handlers return the former and throw the
 * latter, so that is what the type says.
 */
export const responses = <S extends Success>(success: S, ...refusals: (typeof ERROR_STATUSES)[number][]): S => ({
  ...success,
  ...Object.fromEntries(
    Object.entries(success).map(([status, schema]) => [status, { description: SUCCESSES[status], ...schema }]),
  ),
  ...Object.fromEntries(
    [...refusals, 429, 500, 503].map((status) => [
      status,
      { ...Component(ErrorEnvelope), description: REFUSALS[status] },
    ]),
  ),
});

const SUCCESSES: Readonly<Record<string, string>> = { 200: 'Done', 201: 'Created', 204: 'Done' };

const REFUSALS: Readonly<Record<number, string>> = {
  400: 'A field breaks a rule; the message names both',
  401: 'The credential is missing, unknown, expired, revoked or for another environment',
  403: 'The credential is known, but not for this',
  404: 'No such id; a work item may have been handed out again under a new one',
  409: 'It is over or taken already; of a repeat: its Idempotency-Key is in use',
  412: 'The heartbeat token is not the current one, or the lease has lapsed; details.current_state tells what is',
  413: 'The body is larger than the route takes: 1 MiB, unless it says otherwise',
  429: 'More requests than one caller may send; try again after retry-after seconds',
  500: 'A fault of the server',
  503: 'The database did not answer; try again after retry-after seconds',
};
