import t, { type Test } from 'tap';
import { type Answer, ENGINES, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import {
  ITEM_CALLS,
  type Item,
  itemIn,
  newPlace,
  type Place,
  type RowName,
  rowBySeq,
  STALE_TOKEN,
  secondsUntilLapse,
} from '../support/places.ts';

/** Contract §4, cell by cell. The columns are those of CALLS. */
const TABLE: Record<RowName, readonly Outcome[]> = {
  'queued, never handed out': ['id kept', '→ starting', '412', '412', '412', '→ stopped', '→ stopped'],
  'queued, reservation live': ['null', '→ starting', '412', '412', '412', '→ stopped', '→ stopped'],
  'queued, reservation lapsed': ['new id', '→ starting', '412', '412', '412', '→ stopped', '→ stopped'],
  'starting, lease live': ['null', 'unchanged', '→ active', '412', '412', '→ stopped', '→ stopped'],
  'starting, lease lapsed': ['new id', 'unchanged', '→ active', '412', '412', '→ stopped', '→ stopped'],
  'active, lease live': ['null', 'unchanged', '412', 'extended', '412', '→ stopping', '→ stopped'],
  'active, lease lapsed': ['new id', 'unchanged', '412', 'extended', '412', '→ stopping', '→ stopped'],
  'stopping, lease live': ['null', 'unchanged', 'over', 'over', 'over', '409', '→ stopped'],
  'stopping, lease lapsed': ['finalised', 'unchanged', 'over', 'over', 'over', '409', '→ stopped'],
  'stopping, no lease': ['finalised', 'unchanged', 'over', 'over', 'over', '409', '→ stopped'],
  'stopped, ever active': ['null', 'unchanged', 'over', 'over', 'over', '409', '409'],
  'stopped, acked but never active': ['null', 'unchanged', '412', '412', '412', '409', '409'],
  'stopped, never acked': ['null', 'unchanged', '412', '412', '412', '409', '409'],
};

const CALLS: Record<string, (place: Place, item: Item) => Promise<Answer>> = {
  poll: (place) => place.poll(),
  ack: (place, { id }) => place.ack(id),
  'heartbeat NO_HEARTBEAT': (place, { id }) => place.beat(id, 'NO_HEARTBEAT'),
  // Where there is no token yet, another instant of the item's that a client knows.
  'heartbeat <current token>': async (place, { id, token }) =>
    place.beat(id, token ?? (await place.retrieve(id)).json.created_at),
  'heartbeat <stale token>': (place, { id }) => place.beat(id, STALE_TOKEN),
  stop: (place, { id }) => place.stop(id),
  'stop force': (place, { id }) => place.forceStop(id),
};

// Unlike each other, so that one cannot pass for another.
const SETTINGS = { leaseTtlSeconds: 110, startupLeaseSeconds: 70, reclaimOlderThanMs: 40_000 };
const TOKEN = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

type Row = Awaited<ReturnType<typeof rowOf>>;
type Cell = {
  t: Test;
  answer: Answer;
  item: Item;
  before: Row;
  after: Row;
  /** Seconds from the database's now to the lapse, after the call. */
  lease: number | null;
  /** The work object, read after the call. */
  work: unknown;
};
type Outcome = keyof typeof OUTCOMES;

const CONTRACT_COLUMNS = [
  ...['id', 'session_id', 'kind', 'metadata', 'created_at', 'state', 'acknowledged_at', 'started_at'],
  ...['last_heartbeat', 'lease_expires_at', 'stop_requested_at', 'stopped_at'],
] as const;
const changes = ({ before, after }: Cell): string[] =>
  CONTRACT_COLUMNS.filter((column) => JSON.stringify(before[column]) !== JSON.stringify(after[column]));

const isAbout = (t: Test, actual: number | null, expected: number) =>
  t.ok(actual !== null && actual > expected - 5 && actual <= expected, `a lease of ${expected} s, was ${actual}`);

function refused(cell: Cell, status: number, type: string): void {
  const { t, answer, before, after } = cell;
  t.equal(answer.status, status);
  t.match(answer.json, { type: 'error', error: { type } });
  t.strictSame(after, before, 'the whole row is as it was');
}

function handedOut(cell: Cell, ...changed: string[]): void {
  const { t, answer, after, lease } = cell;
  t.equal(answer.status, 200);
  t.match(answer.json, { id: after.id, state: 'queued', secret: String });
  t.strictSame(changes(cell), changed);
  isAbout(t, lease, SETTINGS.reclaimOlderThanMs / 1_000);
}

function beaten(cell: Cell, ...changed: string[]): void {
  const { t, answer, item, lease } = cell;
  t.equal(answer.status, 200);
  const { last_heartbeat: token, ...rest } = answer.json;
  t.strictSame(rest, { type: 'work_heartbeat', lease_extended: true, state: 'active', ttl_seconds: 110 });
  t.match(token, TOKEN);
  t.ok(token > (item.token ?? ''), 'the token moves forward');
  t.match(cell.work, { state: 'active', latest_heartbeat_at: token });
  t.strictSame(changes(cell), changed);
  isAbout(t, lease, SETTINGS.leaseTtlSeconds);
}

const OUTCOMES = {
  null({ t, answer, before, after }: Cell) {
    t.equal(answer.status, 200);
    t.equal(answer.text, 'null');
    t.strictSame(after, before, 'the whole row is as it was');
  },
  finalised(cell: Cell) {
    const { t, answer, before, after } = cell;
    t.equal(answer.text, 'null');
    t.match(after, { state: 'stopped', lease_expires_at: null, stopped_at: String });
    t.strictSame(
      changes(cell).filter((column) => column !== 'lease_expires_at'),
      ['state', 'stopped_at'],
    );
    t.equal(after.last_heartbeat, before.last_heartbeat);
  },
  'id kept'(cell: Cell) {
    cell.t.equal(cell.answer.json.id, cell.item.id);
    handedOut(cell, 'lease_expires_at');
  },
  'new id'(cell: Cell) {
    const { t, answer, before, after, item } = cell;
    t.not(answer.json.id, item.id);
    const reached = (['acknowledged_at', 'started_at', 'last_heartbeat'] as const).filter((name) => before[name]);
    t.match(after, { acknowledged_at: null, started_at: null, last_heartbeat: null });
    const state = before.state === 'queued' ? [] : ['state'];
    handedOut(cell, 'id', ...state, ...reached, 'lease_expires_at');
  },
  '→ starting'(cell: Cell) {
    const { t, answer, work, lease } = cell;
    t.equal(answer.status, 200);
    t.match(answer.json, { state: 'starting', acknowledged_at: String, started_at: null, secret: null });
    t.strictSame(answer.json, work);
    t.strictSame(changes(cell), ['state', 'acknowledged_at', 'lease_expires_at']);
    isAbout(t, lease, SETTINGS.startupLeaseSeconds);
  },
  unchanged({ t, answer, work, before, after }: Cell) {
    t.equal(answer.status, 200);
    t.strictSame(answer.json, work);
    t.strictSame(after, before, 'the whole row is as it was');
  },
  '→ active'(cell: Cell) {
    beaten(cell, 'state', 'started_at', 'last_heartbeat', 'lease_expires_at');
  },
  extended(cell: Cell) {
    beaten(cell, 'last_heartbeat', 'lease_expires_at');
  },
  over({ t, answer, before, after, item }: Cell) {
    t.equal(answer.status, 200);
    const { state } = before;
    const { token } = item;
    const beat = { type: 'work_heartbeat', last_heartbeat: token, lease_extended: false, state, ttl_seconds: 110 };
    t.strictSame(answer.json, beat);
    t.strictSame(after, before, 'the whole row is as it was');
  },
  '→ stopping'(cell: Cell) {
    const { t, answer, after } = cell;
    t.equal(answer.status, 204);
    t.equal(answer.text, '');
    t.equal(after.state, 'stopping');
    t.strictSame(changes(cell), ['state', 'stop_requested_at'], 'the lease is kept');
  },
  '→ stopped'(cell: Cell) {
    const { t, answer, before, after } = cell;
    t.equal(answer.status, 204);
    t.equal(answer.text, '');
    t.equal(after.state, 'stopped');
    t.strictSame(
      changes(cell).filter((column) => column !== 'lease_expires_at'),
      before.stop_requested_at === null ? ['state', 'stop_requested_at', 'stopped_at'] : ['state', 'stopped_at'],
    );
  },
  '412': (cell: Cell) => refused(cell, 412, 'invalid_request_error'),
  '409'(cell: Cell) {
    refused(cell, 409, 'conflict_error');
    cell.t.equal(cell.answer.headers.get('x-should-retry'), 'false');
  },
} as const;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: SETTINGS });
    const { database } = server;

    for (const [row, outcomes] of Object.entries(TABLE) as [RowName, readonly Outcome[]][]) {
      t.test(row, async (t) => {
        t.equal(outcomes.length, Object.keys(CALLS).length);
        for (const [column, [name, call]] of Object.entries(CALLS).entries()) {
          const outcome = outcomes[column] ?? t.fail('no such cell');
          if (typeof outcome === 'boolean') continue;
          await t.test(`${name}: ${outcome}`, async (t) => {
            const place = await newPlace(server);
            const item = await itemIn(place, row, { team: 'tools' });
            const before = await rowOf(database, item.id);
            const answer = await call(place, item);
            const after = await rowBySeq(database, before.seq);
            const id = String(after.id);
            const lease = await secondsUntilLapse(database, id);
            OUTCOMES[outcome]({ t, answer, item, before, after, lease, work: (await place.retrieve(id)).json });
          });
        }
      });
    }

    t.test('under the path of another environment an item is not found, and stays as it was', async (t) => {
      const elsewhere = await newPlace(server);
      for (const row of ['queued, never handed out', 'starting, lease lapsed', 'stopping, lease lapsed'] as const) {
        const home = await newPlace(server);
        const { id } = await itemIn(home, row);
        const before = await rowOf(database, id);
        for (const [name, call] of Object.entries(ITEM_CALLS)) {
          const { status, json } = await call(elsewhere, id, { as: OPERATOR_KEY });
          t.equal(status, 404, `${name}, ${row}`);
          t.match(json, { type: 'error', error: { type: 'not_found_error' } });
        }
        t.equal((await elsewhere.poll()).text, 'null');
        t.strictSame(await rowOf(database, id), before);
      }
    });

    t.test('an id that never was is not found, and is not called handed out again', async (t) => {
      const place = await newPlace(server);
      for (const [name, call] of Object.entries(ITEM_CALLS)) {
        const { status, json } = await call(place, 'work_neverwas');
        t.equal(status, 404, name);
        t.equal(json.error.type, 'not_found_error');
        t.notMatch(json.error.message, /handed out again/);
      }
    });
  });
}
