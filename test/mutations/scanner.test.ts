// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the cases are source text that holds templates
import t from 'tap';
import { mutate, scan } from './scanner.ts';

const seen = (source: string) => scan(source).map(({ kind, cte, text }) => `${cte || '-'} ${kind} ${text}`);

t.test('each condition that decides over a write is found, in whatever clause it stands', async (t) => {
  const cases: [what: string, source: string, guards: string[]][] = [
    ['conjuncts of a WHERE', 'sql`update w set a = 1 where b = 2 and c returning d`', ['- where b = 2', '- where c']],
    ['a disjunction is one', 'sql`delete from w where (a or b and c) and d`', ['- where (a or b and c)', '- where d']],
    [
      'ON, but not ON CONFLICT',
      'sql`from a join b on x = y and u = v where z`',
      ['- on x = y', '- on u = v', '- where z'],
    ],
    ['what is distinct on is no condition', 'sql`select distinct on (a) a from t where b`', ['- where b']],
    ['the predicate of ON CONFLICT', 'sql`on conflict (a) where b do nothing`', ['- where b']],
    [
      'a condition that is a template of its own',
      'sql`w.a = ${b} and (w.c and w.d) and exists (select from e where f)`',
      ['- where w.a = ${b}', '- where (w.c and w.d)', '- where exists (select from e where f)', '- where f'],
    ],
    ['what is to be added to one', 'sql`and a = b`', ['- where a = b']],
    ['an AND that is no condition', 'sql`a, b between c and d from e`', []],
    ['true is no condition', 'sql`from a left join b on true`', []],
    ['BETWEEN keeps its AND', 'sql`where a between 1 and 2 and b`', ['- where a between 1 and 2', '- where b']],
    [
      'CASE of conditions',
      'sql`select case when a and b then 1 when c then 2 end`',
      ['- when a', '- when b', '- when c'],
    ],
    ['CASE of values', "sql`set a = case b when 'x' then 1 else 2 end`", ["- when b = 'x'"]],
    [
      'CASE in a WHERE keeps its AND',
      'sql`where case when a and b then c end and d`',
      ['- where case when a and b then c end', '- where d', '- when a', '- when b'],
    ],
    [
      'a subquery and what is in it',
      'sql`where exists (select from a where b)`',
      ['- where exists (select from a where b)', '- where b'],
    ],
    [
      'an expression is opaque',
      "sql`where a = ${f('and', { b: `and ${c}` })} and d`",
      ["- where a = ${f('and', { b: `and ${c}` })}", '- where d'],
    ],
    ['a template in an expression', 'sql`select ${x ? sql`` : sql`where a and b`}`', ['- where a', '- where b']],
    ['type arguments', 'sql<Row<A> & { f: (a: B) => C }>`where a`', ['- where a']],
    ['words in strings', "sql`where a = ' and ''where'' ' order by b`", ["- where a = ' and ''where'' '"]],
    [
      'limits',
      'sql`where a order by b limit (select 1) for update`',
      ['- where a', '- limit limit (select 1)', '- lock for update'],
    ],
    [
      'locks',
      'sql`select 1 for update of w skip locked`',
      ['- lock for update of w skip locked', '- skip locked skip locked'],
    ],
    ['weaker locks', 'sql`select 1 for no key update`', ['- lock for no key update']],
    [
      'the CTE it stands in',
      'sql`with a as materialized (select 1 where b), c as (select 2 where d) select 3 where e`',
      ['a where b', 'c where d', '- where e'],
    ],
    ['neither comments nor other templates', '/* sql`where a` */ f`where b`\n// sql`where c`', []],
  ];
  for (const [what, source, guards] of cases) t.same(seen(source), guards, what);
});

t.test('a guard is removed without unbinding a parameter', async (t) => {
  const cases: [source: string, mutants: string[]][] = [
    ['sql`where a = ${b} and c`', ['sql`where (true or (a = ${b})) and c`', 'sql`where a = ${b} and (true or (c))`']],
    ["sql`case a when 'b' then c end`", ['sql`case a when a then c end`']],
    ['sql`limit ${n}`', ['sql`limit case when false then (${n}) end`']],
    ['sql`select 1 for update skip locked`', ['sql`select 1 `', 'sql`select 1 for update `']],
  ];
  for (const [source, mutants] of cases) {
    t.same(
      scan(source).map((guard) => mutate(source, guard)),
      mutants,
    );
  }
});

t.test('a guard tells its line in the file', async (t) => {
  t.same(
    scan('const a = 1;\nsql`\n  where a\n    and b`').map(({ line }) => line),
    [3, 4],
  );
});
