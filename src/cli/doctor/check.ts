import { ControlError } from '../../client/call.ts';
import { reasonOf, sayingOf } from '../failures.ts';

export type Check = {
  /** `skip`: what it is about is not there. */
  readonly status: 'ok' | 'warn' | 'fail' | 'skip';
  readonly name: string;
  readonly message: string;
  /** What to do about it. */
  readonly remedy?: string;
};

export const ok = (name: string, message: string): Check => ({ status: 'ok', name, message });
export const skip = (name: string, message: string): Check => ({ status: 'skip', name, message });
export const warn = (name: string, message: string, remedy: string): Check => ({
  status: 'warn',
  name,
  message,
  remedy,
});
export const fail = (name: string, message: string, remedy: string): Check => ({
  status: 'fail',
  name,
  message,
  remedy,
});

export const saying = (error: unknown): string => (error instanceof ControlError ? sayingOf(error) : reasonOf(error));
