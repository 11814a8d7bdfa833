import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { isRecord } from '../queue/limits.ts';

/** The parts of a JSON schema that a rule is made of. */
export type Node = {
  type?: string | readonly string[];
  enum?: readonly unknown[];
  const?: unknown;
  properties?: Record<string, Node>;
  required?: readonly string[];
  patternProperties?: Record<string, Node>;
  additionalProperties?: Node | boolean;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  anyOf?: readonly Node[];
  items?: Node;
  minItems?: number;
  maxItems?: number;
};

/** What is wrong with a value that a schema does not take: the field and the rule that it breaks, in words. */
export const explainWrong = (root: Node, value: unknown): string =>
  explain(...innermost(root, findWrong(root, value), value), value);

const validators = new WeakMap<Node, { Check(value: unknown): boolean }>();

function isValid(node: Node, value: unknown): boolean {
  const validator = validators.get(node) ?? Compile(node as TSchema);
  validators.set(node, validator);
  return validator.Check(value);
}

/**
 * The path of the first thing that is wrong, down to a rule of several kinds. Not by the validator's list of errors: it goes through all of
 * a value, however few it tells, and of a body of 32 MiB that took more memory than there is.
 */
function findWrong(root: Node, value: unknown): string[] {
  const path: string[] = [];
  for (let [node, given] = [root, value]; node.anyOf === undefined; ) {
    const key = wrongKey(node, given);
    const inner = key === undefined ? undefined : child(node, key);
    if (key !== undefined) path.push(key);
    if (key === undefined || inner === undefined || !isRecord(given)) break;
    [node, given] = [inner, given[key]];
  }
  return path;
}

/** What of a value is wrong, where it is not the value itself. */
function wrongKey(node: Node, given: unknown): string | undefined {
  if (Array.isArray(given)) {
    const { items } = node;
    const index = items === undefined ? -1 : given.findIndex((inner) => !isValid(items, inner));
    return index < 0 ? undefined : `${index}`;
  }
  if (!isRecord(given) || ![node.type].flat().includes('object')) return undefined;
  if (node.required?.some((name) => !Object.hasOwn(given, name))) return undefined;
  return Object.keys(given).find((key) => {
    const inner = child(node, key);
    return inner === undefined ? node.additionalProperties === false : !isValid(inner, given[key]);
  });
}

/**
 * Where a rule is one of several kinds, told apart by a literal `type` or by what JSON calls them, the one that was meant says what is
 * wrong: the schema with that kind in its place, and the path of its error.
 */
function innermost(root: Node, path: readonly string[], value: unknown): [schema: Node, path: readonly string[]] {
  for (let depth = 0; depth <= path.length; depth++) {
    const here = path.slice(0, depth);
    const node = here.reduce<Node | undefined>(child, root);
    const given = here.reduce<unknown>((outer, key) => (isRecord(outer) ? outer[key] : undefined), value);
    if (node?.anyOf === undefined) continue;
    const kinds = node.anyOf.filter(({ properties }) => properties?.type?.const !== undefined);
    const meant =
      kinds.length === 0
        ? node.anyOf.find(({ type }) => type === jsonTypeOf(given))
        : kinds.find(({ properties }) => isRecord(given) && properties?.type?.const === given.type);
    if (meant === undefined) {
      if (kinds.length === 0) return [atPath(here, node), here];
      const type = { enum: kinds.map(({ properties }) => properties?.type?.const) };
      return [atPath(here, { properties: { type } }), [...here, 'type']];
    }
    return [atPath(here, meant), [...here, ...findWrong(meant, given)]];
  }
  return [root, path];
}

const jsonTypeOf = (value: unknown): string =>
  Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value;

/** A schema that has this node at the path, and nothing else. */
const atPath = (path: readonly string[], node: Node): Node =>
  path.reduceRight<Node>((inner, key) => ({ properties: { [key]: inner } }), node);

/** The field and the rule that it breaks, in words. */
function explain(root: Node, path: readonly string[], value: unknown): string {
  let node: Node | undefined = root;
  let given: unknown = value;
  const named: string[] = [];
  for (const key of path) {
    if (node?.additionalProperties === false && !Object.hasOwn(node.properties ?? {}, key)) {
      return `${path.join('.')} is not a known field`;
    }
    const parent = node;
    node = child(node, key);
    given = isRecord(given) ? given[key] : undefined;
    // A repeated parameter is named without the number of the time that it was given.
    if (parent?.type !== 'array' || node?.type === 'object') named.push(key);
  }
  const field = named.length === 0 ? 'the body' : named.join('.');
  const missing = isRecord(given) ? node?.required?.find((name) => !Object.hasOwn(given as object, name)) : undefined;
  if (missing !== undefined) {
    return `${[...path, missing].join('.')} is required and must be ${ruleOf(child(node, missing))}`;
  }
  return `${field} must be ${ruleOf(node)}`;
}

function child(node: Node | undefined, key: string): Node | undefined {
  if (node?.properties !== undefined && Object.hasOwn(node.properties, key)) return node.properties[key];
  const [pattern] = Object.values(node?.patternProperties ?? {});
  return (
    node?.items ?? pattern ?? (typeof node?.additionalProperties === 'object' ? node.additionalProperties : undefined)
  );
}

function ruleOf(node: Node | undefined): string {
  if (node === undefined) return 'valid';
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.enum !== undefined) return `one of ${node.enum.join(', ')}`;
  if (node.anyOf !== undefined) return node.anyOf.map(ruleOf).join(' or ');
  const types = [node.type ?? []].flat();
  const nullable = types.includes('null') ? ' or null' : '';
  switch (types[0]) {
    case 'integer':
      return (
        (node.maximum === undefined
          ? `an integer of at least ${node.minimum}`
          : `an integer from ${node.minimum} to ${node.maximum}`) + nullable
      );
    case 'string':
      return (
        (node.maxLength === undefined
          ? 'a string'
          : `a string of ${node.minLength ?? 0} to ${node.maxLength} characters`) + nullable
      );
    case 'boolean':
      return `true or false${nullable}`;
    case 'array':
      if (node.maxItems === 0) return `an empty list${nullable}`;
      return node.maxItems === undefined ? 'a list' : `a list of ${node.minItems ?? 0} to ${node.maxItems}`;
    case 'object':
      return `an object${nullable}`;
    case 'null':
      return 'null';
    default:
      return 'valid';
  }
}
