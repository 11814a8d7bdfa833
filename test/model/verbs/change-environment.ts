import assert from 'node:assert/strict';
import { changeSettings, pauseEnvironment, resumeEnvironment } from '../../../src/control/settings.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import type { World } from '../world.ts';

/** Longer than any history takes: only what was made older has waited for so long. */
export const LONG_AGO_MS = 1_800_000;

/** No row of an item changes by it: what is decided from now on does. */
export async function changeEnvironment(
  world: World,
  operation: Of<'pause' | 'resume' | 'cap' | 'fall back'>,
): Promise<Step> {
  const { database, queue } = world;
  const id = world.environments[operation.environment];
  const environment = world.environmentOf(id);
  let line = `${operation.verb} ${operation.environment}`;
  if (operation.verb === 'cap') {
    environment.maxHandOuts = operation.maxHandOuts;
    line += ` ${operation.maxHandOuts}`;
    await changeSettings(database, id, { maxHandOuts: operation.maxHandOuts }, queue.settings);
  } else if (operation.verb === 'fall back') {
    environment.fallsBack = operation.ever;
    line += operation.ever ? '' : ' never';
    await changeSettings(database, id, { fallbackAfterMs: operation.ever ? LONG_AGO_MS : null }, queue.settings);
  } else {
    environment.isPaused = operation.verb === 'pause';
    const change = environment.isPaused ? pauseEnvironment : resumeEnvironment;
    const answer = await change(database, id, queue.settings);
    assert.equal(answer.pausedAt !== null, environment.isPaused);
  }
  return { line, changed: new Set(), environments: [id] };
}
