import * as workQueue from './0001_work_queue.ts';
import * as controlPlane from './0002_control_plane.ts';
import * as processLane from './0003_process_lane.ts';
import * as sessions from './0004_sessions.ts';
import * as hotPath from './0005_hot_path.ts';
import * as locks from './0006_locks.ts';
import * as streamTickets from './0007_stream_tickets.ts';
import * as outcomes from './0008_outcomes.ts';

/** Every migration, in order. Forward only: a change to what has landed is a new file. */
export const MIGRATIONS = {
  '0001_work_queue': workQueue,
  '0002_control_plane': controlPlane,
  '0003_process_lane': processLane,
  '0004_sessions': sessions,
  '0005_hot_path': hotPath,
  '0006_locks': locks,
  '0007_stream_tickets': streamTickets,
  '0008_outcomes': outcomes,
} as const;
