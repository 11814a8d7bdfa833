/**
 * Finds what decides over a write in the text of the sql`…` templates: every conjunct of a WHERE, an ON and a CASE's WHEN, every
 * LIMIT, every SKIP LOCKED and every row lock; also of a condition that is a template of its own, to stand in the WHERE of others. It knows
 * no more SQL than words, parentheses and `case … end`; `${…}` is opaque.
 */
export type Guard = {
  readonly kind: 'where' | 'on' | 'when' | 'limit' | 'lock' | 'skip locked';
  /** The CTE it stands in; `` for the statement itself. */
  readonly cte: string;
  readonly line: number;
  /** White space collapsed: what a justification is keyed by. */
  readonly text: string;
  /** Where it stands in the source, and what stands there when it is removed. */
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
};

type Token = { readonly text: string; readonly start: number; readonly end: number; readonly depth: number };

const CLAUSE_ENDS = new Set([
  ...[
    'where',
    'on',
    'join',
    'left',
    'right',
    'full',
    'inner',
    'cross',
    'group',
    'having',
    'order',
    'limit',
    'for',
    'returning',
  ],
  ...['union', 'window', 'set', 'do'],
]);
/** What a condition alone does not have outside parentheses. */
const STATEMENT_WORDS = new Set([
  ...'select insert update delete with from set lock case order ,'.split(' '),
  ...CLAUSE_ENDS,
]);
const LOCK_WORDS = new Set(['for', 'no', 'key', 'update', 'share', 'of', 'skip', 'locked', 'nowait']);

export function scan(source: string): Guard[] {
  return templatesIn(source).flatMap(([start, end]) => guardsIn(source, tokensIn(source, start, end)));
}

export const mutate = (source: string, { start, end, replacement }: Guard): string =>
  source.slice(0, start) + replacement + source.slice(end);

function guardsIn(source: string, tokens: readonly Token[]): Guard[] {
  const guards: Guard[] = [];
  const ctes = ctesIn(tokens);
  const collapse = (text: string) => text.replace(/\s+/g, ' ').trim();
  const add = (kind: Guard['kind'], part: readonly Token[], replacement: (text: string) => string, prefix = '') => {
    const [first, last] = [part[0], part.at(-1)];
    if (first === undefined || last === undefined) return;
    const text = source.slice(first.start, last.end);
    if (text === 'true') return;
    guards.push({
      ...{ kind, start: first.start, end: last.end, text: collapse(prefix + text), replacement: replacement(text) },
      cte: ctes.find((cte) => cte.start < first.start && first.start < cte.end)?.name ?? '',
      line: source.slice(0, first.start).split('\n').length,
    });
  };

  const outer = tokens.filter(({ depth }) => depth === 0).map(({ text }) => text);
  if (outer.includes('and') && !outer.some((text) => STATEMENT_WORDS.has(text))) {
    for (const part of conjuncts(tokens)) add('where', part, always);
  }
  for (const [index, token] of tokens.entries()) {
    const next = tokens[index + 1]?.text;
    if (
      token.text === 'where' ||
      (token.text === 'on' && next !== 'conflict' && tokens[index - 1]?.text !== 'distinct')
    ) {
      for (const part of conjuncts(clause(tokens, index, CLAUSE_ENDS))) add(token.text, part, always);
    } else if (token.text === 'when') {
      const subject = subjectOf(tokens, index).map(({ start, end }) => source.slice(start, end));
      const parts = clause(tokens, index, new Set(['then']));
      // `case x when y` compares: without the comparison every x that is not null is taken.
      if (subject.length > 0) add('when', parts, () => subject.join(' '), `${subject.join(' ')} = `);
      else for (const part of conjuncts(parts)) add('when', part, always);
    } else if (token.text === 'limit') {
      // A limit of null is none; the expression stays, so that its parameters stay bound.
      add('limit', clause(tokens, index, CLAUSE_ENDS), (text) => `case when false then (${text}) end`, 'limit ');
    } else if (token.text === 'skip' && next === 'locked') {
      add('skip locked', tokens.slice(index, index + 2), () => '');
    } else if (token.text === 'for' && ['update', 'share', 'no', 'key'].includes(next ?? '')) {
      add('lock', lockClause(tokens, index), () => '');
    }
  }
  return guards;
}

/** Not `true` alone: a parameter that nothing refers to would make the statement fail. */
const always = (text: string): string => `(true or (${text}))`;

/** From after a keyword to where its clause ends: a closing parenthesis, or one of `ends` at the same depth. */
function clause(tokens: readonly Token[], keyword: number, ends: ReadonlySet<string>): Token[] {
  const { depth = 0 } = tokens[keyword] ?? {};
  const part: Token[] = [];
  let cases = 0;
  for (const token of tokens.slice(keyword + 1)) {
    if (token.depth < depth) break;
    if (token.depth === depth) {
      if (cases === 0 && (ends.has(token.text) || token.text === 'end' || token.text === ',')) break;
      if (token.text === 'case') cases++;
      if (token.text === 'end') cases--;
    }
    part.push(token);
  }
  return part;
}

function conjuncts(tokens: readonly Token[]): Token[][] {
  const parts: Token[][] = [[]];
  const depth = Math.min(...tokens.map((token) => token.depth));
  let [cases, between] = [0, false];
  for (const token of tokens) {
    if (token.depth === depth && cases === 0 && token.text === 'and') {
      if (!between) {
        parts.push([]);
        continue;
      }
      between = false;
    }
    if (token.depth === depth) {
      if (token.text === 'between') between = true;
      if (token.text === 'case') cases++;
      if (token.text === 'end') cases--;
    }
    parts.at(-1)?.push(token);
  }
  return parts;
}

/** What stands between a WHEN's CASE and its first WHEN: nothing in a CASE of conditions. */
function subjectOf(tokens: readonly Token[], when: number): Token[] {
  const { depth } = tokens[when] ?? {};
  let ended = 0;
  for (let index = when - 1; index >= 0; index--) {
    const token = tokens[index];
    if (token === undefined || token.depth !== depth) continue;
    if (token.text === 'end') ended++;
    if (token.text === 'case' && ended-- === 0) return clause(tokens, index, new Set(['when']));
  }
  return [];
}

function lockClause(tokens: readonly Token[], start: number): Token[] {
  const part: Token[] = [];
  for (const token of tokens.slice(start)) {
    if (!LOCK_WORDS.has(token.text) && part.at(-1)?.text !== 'of') break;
    part.push(token);
  }
  return part;
}

function ctesIn(tokens: readonly Token[]): { name: string; start: number; end: number }[] {
  return tokens.flatMap((token, index) => {
    if (token.text !== '(' || token.depth !== 0) return [];
    const before = tokens.slice(0, index).map(({ text }) => text);
    while (['materialized', 'not'].includes(before.at(-1) ?? '')) before.pop();
    const name = before.at(-2);
    if (before.at(-1) !== 'as' || name === undefined) return [];
    const close = tokens.slice(index + 1).find(({ text, depth }) => text === ')' && depth === 0);
    return [{ name, start: token.start, end: close?.end ?? Number.POSITIVE_INFINITY }];
  });
}

/** Inside each sql`…` of a source file, also those within another's `${…}`. */
function templatesIn(source: string): [start: number, end: number][] {
  const blank = (text: string) => text.replace(/\S/g, ' ');
  const code = source.replace(/\/\*[\s\S]*?\*\//g, blank).replace(/^\s*\/\/.*$/gm, blank);
  return [...code.matchAll(/\bsql(?=[<`])/g)].flatMap(({ index }): [number, number][] => {
    let at = index + 'sql'.length;
    if (code[at] === '<') at = skipTypeArguments(code, at);
    return code[at] === '`' ? [[at + 1, skipTemplate(code, at + 1) - 1]] : [];
  });
}

function skipTypeArguments(code: string, from: number): number {
  let open = 0;
  for (let at = from; at < code.length; at++) {
    if (code[at] === '<') open++;
    if (code[at] === '>' && code[at - 1] !== '=' && --open === 0) return at + 1;
  }
  return code.length;
}

/** From after the opening backtick to after the closing one. */
function skipTemplate(code: string, from: number): number {
  for (let at = from; at < code.length; at++) {
    if (code[at] === '\\') at++;
    else if (code[at] === '`') return at + 1;
    else if (code.startsWith('${', at)) at = skipExpression(code, at + 2) - 1;
  }
  throw new Error('a template does not end');
}

/** From after `${` to after its `}`. */
function skipExpression(code: string, from: number): number {
  let open = 1;
  for (let at = from; at < code.length; at++) {
    const character = code[at] ?? '';
    if (character === '`') at = skipTemplate(code, at + 1) - 1;
    else if (character === "'" || character === '"') at = skipString(code, at + 1, character) - 1;
    else if (character === '{') open++;
    else if (character === '}' && --open === 0) return at + 1;
  }
  throw new Error('an expression in a template does not end');
}

function skipString(code: string, from: number, quote: string): number {
  for (let at = from; at < code.length; at++) {
    if (code[at] === '\\') at++;
    else if (code[at] === quote) return at + 1;
  }
  throw new Error('a string does not end');
}

function tokensIn(source: string, from: number, to: number): Token[] {
  const tokens: Token[] = [];
  let depth = 0;
  for (let at = from; at < to; ) {
    const rest = source.slice(at, to);
    const blank = /^(\s+|--[^\n]*)/.exec(rest);
    if (blank !== null) {
      at += blank[0].length;
      continue;
    }
    const end = rest.startsWith('${')
      ? skipExpression(source, at + 2)
      : at + (/^('(?:[^']|'')*'|"[^"]*"|[A-Za-z_][\w.]*|[\s\S])/.exec(rest)?.[0].length ?? 1);
    const text = source.slice(at, end);
    if (text === ')') depth--;
    tokens.push({ text, start: at, end, depth });
    if (text === '(') depth++;
    at = end;
  }
  return tokens;
}
