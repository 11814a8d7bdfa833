import t from 'tap';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import {
  ASKED,
  CUSTOM,
  customResult,
  DENIED,
  everything,
  INTERRUPT,
  type RelayPlace,
  relayPlace,
  result,
  SAID,
  sessionRow,
  text,
  verdict,
} from '../support/sessions.ts';
import { checkRefusal } from '../support/wire.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database } = server;

    t.test('the first result of a call wins: any later one is answered with it and adds nothing', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const tool = await place.tool(id);
      const custom = await place.tool(id, CUSTOM);
      const { token } = await place.work();
      const first = await place.answer(id, result(tool, { content: text('first'), is_error: true }));
      t.match(first.json.data, [
        { type: 'user.tool_result', tool_use_id: tool, content: text('first'), is_error: true },
      ]);
      const own = (await place.append(id, customResult(custom)))[0];
      const before = await everything(database);
      for (const as of [place.key, token]) {
        const again = await place.send(id, [result(tool, { content: text('second') })], { as });
        t.match(again, { status: 200 });
        t.strictSame(again.json, first.json, 'whoever repeats it, and whatever it says');
        const both = await place.send(id, [result(tool), customResult(custom), result(tool)], { as });
        t.strictSame(both.json.data, [first.json.data[0], own, first.json.data[0]]);
      }
      t.strictSame((await place.send(id, [customResult(custom)])).json.data, [own], 'an agent repeats its own');
      t.equal(await everything(database), before);
    });

    t.test('a repeat within one call is the first of the call', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const [one, two] = [await place.tool(id), await place.tool(id)];
      const { status, json } = await place.answer(
        id,
        result(one, { content: text('a') }),
        result(two),
        result(one, { content: text('b') }),
        result(two),
      );
      t.equal(status, 200);
      const [a, b, c, d] = json.data;
      t.strictSame([c, d], [a, b]);
      t.match(a, { tool_use_id: one, content: text('a') });
      t.strictSame(await place.events(id, '&types=user.tool_result'), [a, b]);
      t.strictSame(
        (await place.answer(id, result(one), result('sevt_none'))).status,
        400,
        'a repeat excuses nothing beside it',
      );
    });

    t.test('beside what is new a repeat stands in its place, and only the new is stored', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const [one, two] = [await place.tool(id), await place.tool(id)];
      const first = (await place.answer(id, result(one))).json.data[0];
      const { json } = await place.answer(id, result(one), result(two));
      t.strictSame(json.data[0], first);
      t.match(json.data[1], { tool_use_id: two });
      t.strictSame(await place.events(id, '&types=user.tool_result'), json.data);
    });

    t.test('a result comes in late all the same, while its call is open', async (t) => {
      for (const [what, end] of [
        ['after the lease ended', async (_: string, workId: string) => lapse(database, workId, 60)],
        [
          'after the item was put back by the background',
          async (_: string, workId: string) => {
            await lapse(database, workId, 60);
            await server.queue.sweep();
          },
        ],
        [
          'after an operator stopped the item',
          async (_: string, workId: string, place: RelayPlace) => void (await place.stop(workId, { as: OPERATOR_KEY })),
        ],
        [
          'after another worker took it over',
          async (_: string, workId: string, place: RelayPlace) => {
            await lapse(database, workId, 60);
            await place.work();
          },
        ],
        [
          'after an interrupt',
          async (id: string, _: string, place: RelayPlace) => void (await place.append(id, INTERRUPT)),
        ],
        ['after a last word', async (id: string, _: string, place: RelayPlace) => void (await place.append(id, SAID))],
      ] as const) {
        const place = await relayPlace(server);
        const id = await place.session();
        const tool = await place.tool(id);
        const worker = await place.work();
        await end(id, worker.id, place);
        const late = await place.send(id, [result(tool)], { as: worker.token });
        t.match(late, { status: 200, json: { data: [{ tool_use_id: tool }] } }, what);
        t.match(await sessionRow(database, id), { status: 'running', open_calls: '[]' }, what);
        const other = await place.send(id, [result(tool, { content: text('other') })], { as: place.key });
        t.strictSame(other.json, late.json, "the other worker's is a repeat");
      }
    });

    t.test('what answers no call that is open is refused by its field, and adds nothing', async (t) => {
      const place = await relayPlace(server);
      const [id, elsewhere] = [await place.session(), await place.session()];
      const foreign = await place.tool(elsewhere);
      const [message] = await place.append(id, { type: 'user.message', content: [] });
      const tool = await place.tool(id);
      const custom = await place.tool(id, CUSTOM);
      const asked = await place.tool(id, ASKED);
      const denied = await place.tool(id, DENIED);
      const refusedLater = await place.tool(id, ASKED);
      await place.append(id, verdict(refusedLater, 'deny'));
      const withdrawn = await place.tool(id);
      await place.append(id, verdict(withdrawn, 'deny'));
      const answered = await place.tool(id);
      const given = (await place.answer(id, result(answered))).json.data[0];
      const idle = (await place.events(id)).find(({ type }) => type === 'session.status_idle');
      const refusals: [event: object, as: string, message: RegExp][] = [
        [result('sevt_none'), place.key, /^events.0.tool_use_id: no such call in this session/],
        [result(foreign), place.key, /^events.0.tool_use_id: no such call in this session/],
        [result(message.id), place.key, /^events.0.tool_use_id: it is not an agent.tool_use/],
        [result(idle.id), place.key, /^events.0.tool_use_id: it is not an agent.tool_use/],
        [result(given.id), place.key, /^events.0.tool_use_id: it is not an agent.tool_use/],
        [result(custom), place.key, /^events.0.tool_use_id: .* is not an agent.tool_use/],
        [customResult(tool), place.key, /^events.0.custom_tool_use_id: .* is not an agent.custom_tool_use/],
        [customResult(answered), place.key, /^events.0.custom_tool_use_id: it is not an agent.custom_tool_use/],
        [result(asked), place.key, /^events.0.tool_use_id: .* waits for a confirmation/],
        [result(denied), place.key, /^events.0.tool_use_id: the call was denied: its result is not taken/],
        [result(refusedLater), place.key, /^events.0.tool_use_id: the call was denied: its result is not taken/],
        [result(withdrawn), place.key, /^events.0.tool_use_id: the call was denied: its result is not taken/],
        [verdict('sevt_none', 'allow'), OPERATOR_KEY, /^events.0.tool_use_id: no such call/],
        [verdict(custom, 'deny'), OPERATOR_KEY, /^events.0.tool_use_id: .* is not an agent.tool_use/],
        [verdict(tool, 'allow'), OPERATOR_KEY, /^events.0.tool_use_id: .* does not wait for a confirmation/],
        [verdict(denied, 'allow'), OPERATOR_KEY, /^events.0.tool_use_id: the call was denied/],
        [verdict(refusedLater, 'allow'), OPERATOR_KEY, /^events.0.tool_use_id: the call was denied/],
        [verdict(answered, 'deny'), OPERATOR_KEY, /^events.0.tool_use_id: the call has its result/],
        [verdict(message.id, 'deny'), OPERATOR_KEY, /^events.0.tool_use_id: it is not an agent.tool_use/],
      ];
      const before = await everything(database);
      for (const [event, as, message] of refusals) {
        const answer = await place.send(id, [event], { as });
        checkRefusal(t, answer, 400, `${message}`);
        t.match(answer.json.error.message, message);
      }
      t.equal(await everything(database), before);
    });
  });
}
