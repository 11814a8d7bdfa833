import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { Option } from '@commander-js/extra-typings';
import type { ControlClient } from '../../client/control-client.ts';
import { OUTCOMES, STOP_REASONS } from '../../queue/details.ts';
import { WORK_KINDS, WORK_STATES } from '../../queue/items.ts';
import { LIMITS } from '../../queue/limits.ts';
import { FailedError } from '../command.ts';
import { ENVIRONMENT, given, type Kit, QUIET } from '../kit.ts';
import { instant, json, pairs, record, table } from '../table.ts';
import { watchWork } from '../watch.ts';

type Details = Awaited<ReturnType<ControlClient['requeueWork']>>;

const STATE = new Option('--state <state...>', 'only these').choices(WORK_STATES);
const KIND = new Option('--kind <kind...>', 'only these').choices(WORK_KINDS);
const REASON = new Option('--reason <reason...>', 'why it stopped: only these').choices(STOP_REASONS);
const WATCHED_MAX = 100;

export function workCommands(program: CommandUnknownOpts, { asking, ask, checks }: Kit): void {
  const work = program.command('work').description('the items of an environment');

  asking(work, 'list', 'the newest first', [
    'work list',
    'work list --reason exhausted --reason failed',
    'work list --session session-1 --json',
  ])
    .addOption(ENVIRONMENT)
    .addOption(STATE)
    .addOption(KIND)
    .addOption(REASON)
    .addOption(new Option('--outcome <outcome...>', 'what its holder said: only these').choices(OUTCOMES))
    .option('--session <session...>', 'only these')
    .option('--worker <worker...>', 'who has it, or had it last: only these')
    .option('--limit <n>', 'at most so many (20)', checks.integer('limit', 1, LIMITS.pageItems))
    .option('--page <page>', 'the next_page of the answer before')
    .action(({ state, kind, reason, outcome, session, worker, limit, page, ...options }) =>
      ask(options, async ({ control, environmentId, showPage }) => {
        const query = given({ state, kind, reason, outcome, session, worker, limit, page });
        const answer = await control.listWorkDetails(await environmentId(), query);
        showPage(answer, () =>
          table(
            ['ID', 'SESSION', 'KIND', 'STATE', 'REASON', 'WORKER', 'HAND-OUTS', 'CREATED'],
            answer.data.map((item) => [
              ...[item.id, item.data.id, item.kind, item.state, item.stop_reason, item.worker_id],
              ...[item.hand_out_count, instant(item.created_at)],
            ]),
          ),
        );
      }),
    );

  asking(work, 'show <work_id>', 'all that is known of one', ['work show work_V1StGXR8Z5jdHi6BmyT'])
    .addOption(ENVIRONMENT)
    .action((workId, options) =>
      ask(options, async ({ control, environmentId, show }) => {
        const { work } = await control.workHistory(await environmentId(), workId);
        show(work, () => record(fieldsOf(work)));
      }),
    );

  asking(work, 'history <work_id>', 'each of its hand-outs and how it ended, by any id that it ever had', [
    'work history work_V1StGXR8Z5jdHi6BmyT',
  ])
    .addOption(ENVIRONMENT)
    .action((workId, options) =>
      ask(options, async ({ control, environmentId, show }) => {
        const history = await control.workHistory(await environmentId(), workId);
        show(history, () =>
          table(
            ['ID', 'WORKER', 'HANDED OUT', 'ACKED', 'STARTED', 'LAST HEARTBEAT', 'LAPSED', 'ENDED', 'OUTCOME'],
            history.hand_outs.map((each) => [
              ...[each.work_id, each.worker_id, instant(each.handed_out_at), instant(each.acknowledged_at)],
              ...[instant(each.started_at), instant(each.last_heartbeat_at), instant(each.lapsed_at)],
              ...[instant(each.ended_at), each.outcome],
            ]),
          ),
        );
      }),
    );

  asking(work, 'result <work_id>', 'what it was ended with, as JSON, by any id that it ever had', [
    'work result work_V1StGXR8Z5jdHi6BmyT',
  ])
    .addOption(ENVIRONMENT)
    .action((workId, options) =>
      ask(options, async ({ control, environmentId, show }) => {
        const id = await environmentId();
        const { work: item } = await control.workHistory(id, workId);
        if (!item.has_result) throw new FailedError(`${item.id} is ${item.state}, without a result`);
        const answer = await control.readWorkResult(id, item.id);
        show(answer, () => `${json(answer.result)}\n`);
      }),
    );

  asking(work, 'stop <work_id>', 'an active item winds down under its lease; any other ends at once', [
    'work stop work_V1StGXR8Z5jdHi6BmyT',
    'work stop work_V1StGXR8Z5jdHi6BmyT --force',
  ])
    .addOption(ENVIRONMENT)
    .option('--force', 'an active one ends at once, too')
    .action((workId, { force, ...options }) =>
      ask(options, async ({ work, control, environmentId, show }) => {
        const id = await environmentId();
        await work.stopWork(id, workId, given({ force }));
        const { work: item } = await control.workHistory(id, workId);
        show(item, () => `${item.id} is ${item.state}\n`);
      }),
    );

  asking(work, 'requeue <work_id>', 'a new item in place of one that was set aside (exhausted, failed)', [
    'work requeue work_V1StGXR8Z5jdHi6BmyT',
  ])
    .addOption(ENVIRONMENT)
    .addOption(QUIET)
    .action((workId, options) =>
      ask(options, async ({ control, environmentId, show }) => {
        const item = await control.requeueWork(await environmentId(), workId);
        show(item, () => `${item.id} is ${item.state}, in place of ${item.requeued_from}\n`, item.id);
      }),
    );

  asking(work, 'watch', 'a line per change, until Ctrl-C, or until the one of --id has stopped', [
    'work watch',
    'work watch --reason exhausted failed',
    'work watch --id work_V1StGXR8Z5jdHi6BmyT',
    `work watch --json | jq -r 'select(.state == "stopped") | .data.id'`,
  ])
    .addOption(ENVIRONMENT)
    .addOption(
      new Option('--id <work_id>', 'this one alone').conflicts(['state', 'kind', 'reason', 'session', 'limit']),
    )
    .addOption(STATE)
    .addOption(KIND)
    .addOption(REASON)
    .option('--session <session...>', 'only these')
    .option(
      '--limit <n>',
      `the newest so many are watched (${WATCHED_MAX})`,
      checks.integer('limit', 1, LIMITS.pageItems),
    )
    .option('--interval-ms <n>', 'how often the server is asked (1000)', checks.integer('interval-ms', 100, 3_600_000))
    .action(({ id, state, kind, reason, session, limit, intervalMs = 1_000, ...options }) =>
      ask(options, async (desk) => {
        const environmentId = await desk.environmentId();
        const query = { ...given({ state, kind, reason, session }), limit: limit ?? WATCHED_MAX };
        const look = async () =>
          id === undefined
            ? (await desk.control.listWorkDetails(environmentId, query)).data
            : [(await desk.control.workHistory(environmentId, id)).work];
        await watchWork(desk, { look, intervalMs, untilStopped: id !== undefined });
      }),
    );
}

const fieldsOf = (item: Details) => ({
  id: item.id,
  session: item.data.id,
  kind: item.kind,
  lane: item.lane,
  state: item.state,
  'stop reason': item.stop_reason,
  outcome: item.outcome,
  result: item.has_result ? 'leasehold work result tells it' : null,
  metadata: pairs(item.metadata),
  priority: item.priority,
  'not before': instant(item.not_before),
  worker: item.worker_id,
  'hand-outs': item.max_hand_outs === null ? item.hand_out_count : `${item.hand_out_count} of ${item.max_hand_outs}`,
  attempt: item.max_attempts === null ? item.attempt : `${item.attempt} of ${item.max_attempts}`,
  'next attempt': instant(item.next_attempt_at),
  created: instant(item.created_at),
  'handed out': instant(item.handed_out_at),
  acknowledged: instant(item.acknowledged_at),
  started: instant(item.started_at),
  'last heartbeat': instant(item.latest_heartbeat_at),
  'lease expires': instant(item.lease_expires_at),
  'stop requested': instant(item.stop_requested_at),
  stopped: instant(item.stopped_at),
  'last error': item.last_error,
  'requeued from': item.requeued_from,
  'requeued as': item.requeued_as,
});
