import { sql } from 'kysely';
import t from 'tap';
import { watch } from '../support/gates.ts';
import { ENGINES, OPERATOR_KEY, testDatabase, testServer } from '../support/harness.ts';

const ENVIRONMENTS = 10_000;
const PAGE = 1_000;

for (const engine of ENGINES) {
  t.test(
    `${engine}: a walk meets each of ${ENVIRONMENTS} environments once, one bounded statement a page`,
    async (t) => {
      const plain = await testDatabase(t, engine);
      const { environments } = plain.names;
      // A hundred at a time share their instant: the id decides between them.
      await plain.rows(sql`insert into ${environments} (id, name, type, created_at)
      select 'env_' || md5(n::text), 'name ' || n, 'self_hosted',
        timestamptz '2026-01-01T00:00:00.000001Z' + n / 100 * interval '1 microsecond'
      from generate_series(1, ${ENVIRONMENTS}::integer) n`);
      const lists = watch(plain, /from "\w+"\."environments"[\s\S]*order by[\s\S]*limit/);
      const { call, environment } = await testServer(t, { database: lists.database });
      const seen: { id: string; created_at: string }[] = [];
      let query = `?limit=${PAGE}`;
      for (let pages = 1; pages <= 20; pages++) {
        const { status, json } = await call('GET', `/v1/environments${query}`, { as: OPERATOR_KEY });
        t.equal(status, 200);
        t.ok(json.data.length <= PAGE);
        t.equal(lists.begun(), pages, 'one statement');
        seen.push(...json.data);
        // What comes and goes meanwhile moves no page.
        await plain.rows(
          sql`insert into ${environments} (id, name, type) values (${`env_new${pages}`}, ${`new ${pages}`}, 'cloud')`,
        );
        await plain.rows(sql`update ${environments} set archived_at = clock_timestamp() where id = ${seen[0]?.id}`);
        if (json.next_page === null) break;
        query = `?limit=${PAGE}&page=${encodeURIComponent(json.next_page)}`;
      }
      t.equal(seen[0]?.id, environment.id, 'newest first');
      t.equal(seen.length, ENVIRONMENTS + 1);
      t.equal(new Set(seen.map(({ id }) => id)).size, ENVIRONMENTS + 1, 'each once');
      t.equal(lists.begun(), 11);
      const order = seen.map(({ created_at, id }) => `${created_at} ${id}`);
      t.strictSame(order, order.toSorted().reverse());
    },
  );
}
