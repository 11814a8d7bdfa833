import type { Test } from 'tap';
import { type Engine, OPERATOR_KEY, testServer } from './harness.ts';
import { testFolder } from './process.ts';
import { agentSide, gate } from './agent-side.ts';

/** Beats come every second: the worker hears soon of what became of its item. */
const settings = { leaseTtlSeconds: 2, sweepIntervalMs: 50 };

/** A server, and a session with a call that goes on until the test says so. */
export async function heldCall(t: Test, engine: Engine = 'postgres', overrides: object = settings) {
  const server = await testServer(t, { engine, background: true, settings: overrides });
  const folder = testFolder(t);
  const agent = await agentSide(server);
  const held = gate(folder);
  const call = await agent.call('bash', { command: held.command });
  t.teardown(held.open); // before the folder goes, or its shell waits on
  const item = async () => (await server.call('GET', server.work('?limit=1'))).json.data[0];
  const stop = async (force: boolean) =>
    (await server.call('POST', server.work(`/${(await item()).id}/stop`), { as: OPERATOR_KEY, body: { force } }))
      .status;
  return { server, folder, agent, held, call, item, stop };
}
