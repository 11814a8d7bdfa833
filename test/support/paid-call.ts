import pg from 'pg';

/** The table that counts how often a call was paid for, and what it left. */
export const PAID_CALLS = `create table paid_calls (place text not null, token bigint not null, result text)`;

/** The expensive call of a place's contenders, over connections of its own. */
export function payFor(url: string, place: string) {
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  const begin = (token: number) => pool.query('insert into paid_calls (place, token) values ($1, $2)', [place, token]);
  return {
    async check(): Promise<string | undefined> {
      const { rows } = await pool.query('select result from paid_calls where place = $1 and result is not null', [
        place,
      ]);
      return rows[0]?.result;
    },
    /** Pays, and leaves its result. */
    async run({ token }: { token: number }): Promise<string> {
      await begin(token);
      const result = `paid under ${token}`;
      await pool.query('update paid_calls set result = $1 where place = $2 and token = $3', [result, place, token]);
      return result;
    },
    /** Pays, and never comes to an end. */
    async begin({ token }: { token: number }): Promise<string> {
      await begin(token);
      return new Promise(() => {});
    },
    /** How often it was paid for, and what that left, in the order of the tokens. */
    async calls(): Promise<{ token: number; result: string | null }[]> {
      const { rows } = await pool.query(
        'select token::integer, result from paid_calls where place = $1 order by token',
        [place],
      );
      return rows;
    },
    close: () => pool.end(),
  };
}
