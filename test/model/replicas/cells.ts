/** What every longer run has to come by, else the test says nothing about it. */
export const MET: readonly string[] = [
  ...['a crash', 'connections to the database ended by it', 'answers of the database lost'],
  'answers of the database late',
  ...['rows held by another transaction', 'a batch that lost to a deadlock'],
  ...['the same twice in a batch', 'the same at both replicas at once'],
  ...['left', 'broken', '503'].map((why) => `a call whose outcome is not known: ${why}`),
  ...['enqueue', 'ack', 'beat', 'stop', 'release', 'report', 'acquire', 'renew', 'let go'].flatMap((verb) => [
    `${verb}: the answer is lost`,
    `${verb}: the answer is left`,
  ]),
  ...['ack', 'beat', 'stop'].map((verb) => `${verb}: a set`),
  ...['', ', the answer is slow before its first byte', ', the answer is slow after its first byte'].map(
    (how) => `poll: the client leaves${how}`,
  ),
  'poll, nothing: null',
  'poll that waits, nothing: null',
  // What became of rows.
  'enqueued, no item',
  ...['queued: id kept', 'queued: new id', 'starting: new id', 'active: new id'].map((how) => `handed out, ${how}`),
  ...['unseen', 'a byte went out'].map((how) => `put back, queued: ${how}`),
  ...[
    'acked, queued',
    'beat, starting',
    'beat, active',
    'replayed, active',
    'stop asked, active',
    'finalised, stopping',
  ],
  ...['queued', 'starting', 'active', 'stopping'].flatMap((state) => [
    `stopped, ${state}`,
    `cancelled, ${state}`,
    `lapsed, ${state}`,
  ]),
  ...['queued', 'starting', 'active'].flatMap((state) => [`exhausted, ${state}`, `follow-up kept, ${state}`]),
  ...['starting', 'active'].map((state) => `requeued, ${state}`),
  ...['queued', 'starting', 'active'].flatMap((state) => [
    `released, ${state}`,
    `tried again, ${state}`,
    `concluded, ${state}`,
  ]),
  'concluded, stopping',
  ...['taken', 'extended', 'let go', 'left as it was', 'expired'].map((change) => `lock ${change}`),
  // What was answered.
  ...['starting', 'active', 'stopping', 'stopped'].map((state) => `ack, ${state}: 200`),
  ...['queued', 'starting', 'active', 'stopped'].map((state) => `beat, ${state}: 412`),
  ...['stopping', 'stopped'].map((state) => `beat, ${state}: 200`),
  ...['stopping', 'stopped'].map((state) => `stop, ${state}: 409`),
  ...['queued', 'starting', 'active'].flatMap((state) => [
    `release, ${state}: released`,
    `release, ${state}: 412`,
    `report, ${state}: tried again`,
    `report, ${state}: 412`,
  ]),
  ...['release, stopped: 200', 'report, stopped: 200', 'report, stopped: 409', 'report, tried again: 409'],
  ...['release, released', 'report, tried again'].map((end) => `${end}: 200 again`),
  ...['release, handed out', 'release, tried again', 'report, handed out', 'report, released'].map(
    (end) => `${end}: 404`,
  ),
  ...['acquire, no lock: 200', 'acquire, free: 200', 'acquire, its own: 200', 'acquire, held: 409'],
  ...['renew: 200', 'renew: 409', 'let go: true', 'let go: false'],
  ...['ack', 'beat', 'stop'].flatMap((verb) =>
    ['queued', 'starting', 'active'].map((state) => `${verb}, ${state}: 404`),
  ),
  ...['queued', 'starting', 'active', 'stopping', 'stopped'].flatMap((state) => [
    `patch, ${state}: 200`,
    `read, ${state}: 200`,
  ]),
  ...['queued', 'starting', 'active', 'stopped'].map((state) => `result, ${state}: 200`),
  ...['queued', 'starting', 'active', 'known'].map((state) => `enqueue, ${state}: covered`),
  'enqueue, no item: new',
  'enqueue, taken: 409',
];
