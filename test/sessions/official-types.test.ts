import Anthropic from '@anthropic-ai/sdk';
import t from 'tap';
import { ENGINES, testServer } from '../support/harness.ts';
import { officialClient } from '../support/official-client.ts';
import { relayPlace, text } from '../support/sessions.ts';

type Session = Anthropic.Beta.BetaManagedAgentsSession;

/** Every field that the official type has: what the compiler makes of it, this object shows. */
const FIELDS: Record<keyof Session, true> = {
  ...{ id: true, agent: true, archived_at: true, budget: true, created_at: true, environment_id: true, metadata: true },
  ...{ outcome_evaluations: true, resources: true, stats: true, status: true, title: true, type: true },
  ...{ updated_at: true, usage: true, vault_ids: true, deployment_id: true },
};
const AGENT_FIELDS: Record<keyof Session['agent'], true> = {
  ...{ id: true, description: true, execution_identity: true, mcp_servers: true, model: true, multiagent: true },
  ...{ name: true, skills: true, system: true, tools: true, type: true, version: true },
};

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const place = await relayPlace(server);
    const { client } = officialClient(t, server);
    const worker = client.withOptions({ apiKey: null, authToken: place.key });
    const { sessions } = client.beta;
    const made = () => sessions.create({ environment_id: place.environmentId, agent: 'agent_1' });

    t.test('the official client makes, reads, changes, lists, archives and deletes sessions', async (t) => {
      const session: Session = await sessions.create({
        ...{ environment_id: place.environmentId, title: 'first', metadata: { team: 'tools', old: 'x' } },
        ...{ agent: { type: 'agent', id: 'agent_1', version: 2 } },
      });
      t.strictSame(Object.keys(session).sort(), Object.keys(FIELDS).sort());
      t.strictSame(Object.keys(session.agent).sort(), Object.keys(AGENT_FIELDS).sort());
      t.match(session, {
        type: 'session',
        status: 'idle',
        resources: [],
        agent: { id: 'agent_1', version: 2, skills: [] },
      });
      t.strictSame(await sessions.retrieve(session.id), session);

      const changed = await sessions.update(session.id, { title: null, metadata: { old: null, more: 'y' } });
      t.strictSame(
        { ...changed, updated_at: '' },
        { ...session, title: null, metadata: { team: 'tools', more: 'y' }, updated_at: '' },
      );
      t.ok(changed.updated_at > session.updated_at);

      const others = [await made(), await made()];
      const walked: string[] = [];
      for await (const { id } of sessions.list({ limit: 1, statuses: ['idle'] })) walked.push(id);
      t.strictSame(walked, [...others.map(({ id }) => id).reverse(), session.id]);
      const first = await sessions.list({ limit: 2, order: 'asc' });
      const second = await first.getNextPage();
      t.strictSame(
        second.data.map(({ id }) => id),
        [others[1]?.id],
      );
      t.ok(second.prev_page);
      t.strictSame((await sessions.list({ limit: 2, order: 'asc', page: second.prev_page ?? '' })).data, first.data);

      const archived = await sessions.archive(session.id);
      t.match(archived, { id: session.id, status: 'terminated', archived_at: String });
      t.strictSame(await sessions.delete(session.id), { id: session.id, type: 'session_deleted' });
      await t.rejects(sessions.retrieve(session.id), Anthropic.NotFoundError);
    });

    t.test('the official client sends, lists and pages events', async (t) => {
      const { id } = await made();
      const sent = await sessions.events.send(id, {
        events: [{ type: 'user.message', content: [{ type: 'text', text: 'hello' }] }, { type: 'user.interrupt' }],
      });
      t.match(sent.data, [
        { type: 'user.message', id: /^sevt_/, content: [{ type: 'text', text: 'hello' }], processed_at: String },
        { type: 'user.interrupt', id: /^sevt_/, processed_at: String },
      ]);
      t.equal(sent.data?.length, 2);
      const call = await place.tool(id);
      await worker.beta.sessions.events.send(id, {
        events: [{ type: 'user.tool_result', tool_use_id: call, content: [], is_error: null }],
      });
      const listed: Anthropic.Beta.Sessions.BetaManagedAgentsSessionEvent[] = [];
      for await (const event of worker.beta.sessions.events.list(id, { limit: 2 })) listed.push(event);
      t.strictSame(
        listed.map(({ type }) => type),
        [
          'user.message',
          'user.interrupt',
          'session.status_idle',
          'agent.tool_use',
          'session.status_idle',
          'user.tool_result',
          'session.status_running',
        ],
      );
      const calls: string[] = [];
      for await (const event of sessions.events.list(id, {
        types: ['agent.tool_use', 'session.status_idle'],
        order: 'desc',
      })) {
        calls.push(event.type === 'session.status_idle' ? event.stop_reason.type : event.type);
      }
      t.strictSame(calls, ['requires_action', 'agent.tool_use', 'end_turn']);
      t.equal((await sessions.retrieve(id)).status, 'running');
    });

    t.test('the official client understands refusals', async (t) => {
      const { id } = await made();
      const send = (client: Anthropic, events: object[]) =>
        client.beta.sessions.events.send(id, { events } as never, { maxRetries: 0 });
      const unknown = { type: 'user.tool_result', tool_use_id: 'sevt_none', content: text('') };
      await t.rejects(send(worker, [unknown]), Anthropic.BadRequestError);
      await t.rejects(send(client, [unknown]), Anthropic.PermissionDeniedError);
      const elsewhere = await relayPlace(server);
      const stranger = client.withOptions({ apiKey: null, authToken: elsewhere.key });
      await t.rejects(stranger.beta.sessions.retrieve(id), Anthropic.AuthenticationError);
    });
  });
}
