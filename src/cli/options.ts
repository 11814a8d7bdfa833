import { UsageError } from './command.ts';

/**
 * Values that are checked as they are read. What is wrong is noted, not thrown, so that all of it is told at once; the value that
 * stands in for a wrong one is never used.
 */
export function createChecks(problems: string[]) {
  return {
    integer: (option: string, min: number, max: number) => (given: string) => {
      const value = /^(0|-?[1-9]\d{0,15})$/.test(given) ? Number(given) : Number.NaN;
      if (value >= min && value <= max) return value;
      problems.push(`--${option} must be an integer from ${min} to ${max}, got ${JSON.stringify(given)}`);
      return min;
    },

    text: (option: string) => (given: string) => {
      if (given === '') problems.push(`--${option} must not be empty`);
      return given;
    },

    /** May be given more than once. */
    pairs:
      (option: string) =>
      (given: string, before: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> => {
        const at = given.indexOf('=');
        if (at < 1) problems.push(`--${option} must be key=value, got ${JSON.stringify(given)}`);
        return { ...before, [given.slice(0, at)]: given.slice(at + 1) };
      },

    /** Any JSON value. */
    json: (option: string) => (given: string) => {
      try {
        return parseJson(`--${option}`, given);
      } catch (error) {
        problems.push(error instanceof Error ? error.message : `${error}`);
        return undefined;
      }
    },
  };
}

/** What is wrong with the address of a server, if anything. With a user in it no request can be made, and it would be printed as it is. */
export function urlProblem(name: string, url: string): string | undefined {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    return `${name} must be a URL that starts with http:// or https://`;
  }
  const { username, password } = new URL(url);
  return username === '' && password === '' ? undefined : `${name} must be a URL without a user and a password`;
}

export type Checks = ReturnType<typeof createChecks>;

/** Throws UsageError, which says where it is from. */
export function parseJson(where: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UsageError([`${where} must be JSON: ${error instanceof Error ? error.message : error}`], {
      cause: error,
    });
  }
}
