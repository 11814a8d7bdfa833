// biome-ignore-all lint/suspicious/noTemplateCurlyInString: conditions are quoted as they stand in the source
/** A guard whose removal no test can notice, by file and text, and why. One that matches nothing is an error. */
export type Justified = { readonly file: string; readonly cte: string; readonly text: string; readonly reason: string };

export const JUSTIFIED: readonly Justified[] = [
  {
    file: 'src/queue/enqueue-statement.ts',
    cte: '',
    text: "state in ('queued', 'starting', 'active')",
    reason: 'names the partial unique index: without it Postgres finds no such index and refuses the statement',
  },
  {
    file: 'src/process/claim.ts',
    cte: '',
    text: 'c.seq is null',
    reason: 'spares a claim that has its item the list of what it read: nobody looks on then',
  },
  {
    file: 'src/process/free-items.ts',
    cte: '',
    text: 'e.fallback_after_ms is not null',
    reason: 'names the partial index: what is null makes no instant that has passed',
  },
  {
    file: 'src/process/free-items.ts',
    cte: '',
    text: 'limit ${sql.lit(LAPSED_MAX)}',
    reason: 'spares sorting and carrying what a claim does not come to: which one it takes is the same',
  },
  {
    file: 'src/process/settle.ts',
    cte: '',
    text: 'w.seq = c.seq',
    reason: 'joins one row at most with one row at most: what was changed is what was found',
  },
  {
    file: 'src/sessions/update.ts',
    cte: '',
    text: 'n.id = c.id',
    reason: 'joins one row at most with one row at most: what was changed is what was found',
  },
  {
    file: 'src/sessions/rearm.ts',
    cte: '',
    text: "s.last_event_at < statement_timestamp() - ${sql.lit(QUIET_SECONDS)} * interval '1 second'",
    reason:
      'spares locking what is not quiet yet: how long it has been is asked again under the lock, and the quietest come first',
  },
  {
    file: 'src/sessions/rearm.ts',
    cte: '',
    text: 'limit 1',
    reason: 'spares reading what nobody looks at: the first row is taken',
  },
  {
    file: 'src/sessions/prune.ts',
    cte: 'old',
    text: "s.archived_at < statement_timestamp() - interval '1 day'",
    reason: 'bounds what is read of the index: no retention is shorter than a day',
  },
  {
    file: 'src/queue/put-back.ts',
    cte: '',
    text: 'w.id = ${token.workId}',
    reason: 'finds by its index the one row that the hash of 256 random bits names already',
  },
  {
    file: 'src/queue/list-details.ts',
    cte: '',
    text: "w.state = 'stopped'",
    reason: 'names the partial index of what was set aside: no item has such a reason before it has stopped',
  },
  {
    file: 'src/queue/list-details.ts',
    cte: '',
    text: "w.stop_reason in ('exhausted', 'failed')",
    reason: 'names the partial index of what was set aside: the filter asks for one of the two anyway',
  },
  {
    file: 'src/queue/list-details.ts',
    cte: '',
    text: 'limit ${limit + 1}::integer',
    reason: 'spares reading, sorting and carrying what the page leaves out: it is cut to its size when it is made',
  },
  {
    file: 'src/locks/list.ts',
    cte: 'live',
    text: 'limit ${limit + 1}::integer',
    reason: 'spares reading and carrying what the page leaves out: it is cut to its size when it is made',
  },
  {
    file: 'src/control/credentials.ts',
    cte: '',
    text: 'w.id = ${caller.workId}',
    reason: 'finds by its index the one row that the hash of 256 random bits names already',
  },
  {
    file: 'src/queue/prune.ts',
    cte: 'finished',
    text: "w.state = 'stopped'",
    reason: 'names the partial index: a row has a stopped_at when it is stopped, and only then',
  },
  {
    file: 'src/queue/prune.ts',
    cte: 'finished',
    text: 'limit ${sql.lit(ROWS_PER_ENVIRONMENT_MAX)}',
    reason: 'keeps the look at one environment to its index; the limit around it bounds what is removed',
  },
  {
    file: 'src/queue/sweep.ts',
    cte: 'exhausted',
    text: 'l.is_spent',
    reason:
      'parts two updates of one row, of which the other one comes first as Postgres runs it now, and no promise is made',
  },
  {
    file: 'src/queue/sets.ts',
    cte: '',
    text: '${found} is null',
    reason: 'spares looking further for what was found: nobody asks what became of it then',
  },
  ...['w.id = wanted.id', '${isThere}'].map((text) => ({
    ...{ file: 'src/queue/sets.ts', cte: '', text },
    reason: 'decides only whether an id that was not found is asked for once more, alone; that answer counts',
  })),
  {
    file: 'src/queue/refusals.ts',
    cte: 'old',
    text: 'r.environment_id in (select g.environment_id from given g)',
    reason: 'spares reading the whole table: whose old counts are pruned makes no difference',
  },
  ...['r.environment_id = o.environment_id', 'r.refusal = o.refusal'].map((text) => ({
    ...{ file: 'src/queue/refusals.ts', cte: 'pruned', text },
    reason: 'takes others with it only of the same minute, which are as old',
  })),
  {
    file: 'src/queue/enqueue-statement.ts',
    cte: 'occupied',
    text: 'limit 1',
    reason: 'keeps the planner from making a join of it: there is one at most',
  },
  {
    file: 'src/control/change-environment.ts',
    cte: '',
    text: 'limit 1',
    reason: 'spares reading what one row has told already',
  },
  {
    file: 'src/control/change-environment.ts',
    cte: '',
    text: 'n.id = c.id',
    reason: 'joins one row at most with one row at most: both are of the asked id',
  },
];
