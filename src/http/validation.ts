import { parse } from 'node:querystring';
import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { QueueError } from '../queue/errors.ts';
import { findUnstorable } from '../queue/limits.ts';
import { explainWrong, type Node } from './explain.ts';

/**
 * Validates without coercing anything (contract §1). A path that cannot exist is 404; headers are never refused; of a query,
 * unknown parameters are ignored and integers are read strictly from their text.
 */
export const validatorCompiler: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  if (httpPart === 'headers') return (value: unknown) => ({ value });
  const validator = Compile(schema);
  const root = schema as Node;
  return (value: unknown) => {
    if (httpPart === 'params') {
      return validator.Check(value) ? { value } : { error: new QueueError('not_found', 'no such id') };
    }
    // No body is null here, and only a schema that allows null takes it.
    const parsed = httpPart === 'querystring' ? parseQuery(root, value) : (value ?? null);
    if (validator.Check(parsed)) {
      const unstorable = findUnstorable(parsed, 'the body');
      if (unstorable === undefined) return { value: parsed };
      return { error: refuse(`${unstorable} must not hold NUL or unpaired surrogates`) };
    }
    return { error: refuse(explainWrong(root, parsed)) };
  };
};

/** Percent-encoding that is not UTF-8 stands for no text: read as NUL, it is refused where the parameter is declared. */
export const querystringParser = (query: string): Record<string, unknown> =>
  parse(query, '&', '=', {
    maxKeys: 0,
    decodeURIComponent(text) {
      try {
        return decodeURIComponent(text);
      } catch {
        return '\0';
      }
    },
  });

const refuse = (message: string): QueueError => new QueueError('invalid_request', message);

const INTEGER = /^(0|[1-9]\d*)$/;

/**
 * Only declared parameters: lists of what may be repeated, booleans from `true` and `false`, and integers from plain decimal digits: `1e2`, ` 5 ` and `0x10` stay the text they are. What is
 * larger than an exact number is one all the same: some parameters are clamped, not limited.
 */
function parseQuery(schema: Node, query: unknown): Record<string, unknown> {
  const given: Record<string, unknown> = { ...(query as object) };
  const parsed: Record<string, unknown> = {};
  for (const [name, rule] of Object.entries(schema.properties ?? {})) {
    const value = given[name];
    if (value === undefined) continue;
    if (rule.type === 'integer' && typeof value === 'string' && INTEGER.test(value)) {
      parsed[name] = Math.min(Number(value), Number.MAX_SAFE_INTEGER);
    } else if (rule.type === 'boolean' && (value === 'true' || value === 'false')) {
      parsed[name] = value === 'true';
    } else if (rule.type === 'array') {
      parsed[name] = [value].flat();
    } else {
      parsed[name] = value;
    }
  }
  return parsed;
}
