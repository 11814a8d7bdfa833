import t from 'tap';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { path, relayPlace } from '../support/sessions.ts';
import { read, SEQUENCES, tellShort } from '../support/turns.ts';

for (const engine of ENGINES) {
  t.test(`${engine}: what is told of each append, as it is stored`, async (t) => {
    const server = await testServer(t, { engine });
    const place = await relayPlace(server);
    for (const sequence of SEQUENCES) {
      const id = await place.session();
      const calls: string[] = [];
      let count = 0;
      for (const [step, told] of sequence) {
        const { events, sender } = read(step, calls);
        const { status, text, json } = await place.send(id, events, {
          as: sender === 'worker' ? place.key : OPERATOR_KEY,
        });
        t.equal(status, 200, `${step}: ${text}`);
        const added = (await place.events(id)).slice(count);
        count += added.length;
        for (const event of added) if (/tool_use$/.test(event.type)) calls.push(event.id);
        const statuses = added.filter(({ type }) => type.startsWith('session.'));
        t.equal(tellShort(statuses[0], calls), told, step);
        t.ok(statuses.length <= 1, 'one at most');
        t.equal(added.at(-1)?.type.startsWith('session.') ?? false, told !== '-', 'after what it is about');
        if (told !== '-') t.equal(new Set(added.map((event) => event.processed_at)).size, 1, 'in the same instant');
        t.equal(json.data.length, events.length, 'which the answer does not hold');
        if (told === '-') continue;
        const session = (await server.call('GET', path(id), { as: OPERATOR_KEY })).json;
        t.equal(session.status, told === 'running' ? 'running' : 'idle');
        t.equal(session.updated_at, added.at(-1)?.processed_at);
        if (told !== 'running') t.equal(statuses[0].stop_details, null);
      }
    }
  });
}
