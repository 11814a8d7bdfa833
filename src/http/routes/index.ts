import type { App, AppOptions } from '../app.ts';
import { ackRoute } from './ack.ts';
import { archiveEnvironmentRoute } from './archive-environment.ts';
import { createEnvironmentRoute } from './create-environment.ts';
import { deleteEnvironmentRoute } from './delete-environment.ts';
import { enqueueRoute } from './enqueue.ts';
import { healthRoutes } from './health.ts';
import { heartbeatRoute } from './heartbeat.ts';
import { issueKeyRoute } from './issue-key.ts';
import { listRoute } from './list.ts';
import { listEnvironmentsRoute } from './list-environments.ts';
import { patchMetadataRoute } from './patch-metadata.ts';
import { pollRoute } from './poll.ts';
import { retrieveRoute } from './retrieve.ts';
import { retrieveEnvironmentRoute } from './retrieve-environment.ts';
import { statsRoute } from './stats.ts';
import { stopRoute } from './stop.ts';
import { updateEnvironmentRoute } from './update-environment.ts';

export function registerRoutes(app: App, options: AppOptions): void {
  pollRoute(app, options);
  statsRoute(app, options);
  listRoute(app, options);
  retrieveRoute(app, options);
  ackRoute(app, options);
  heartbeatRoute(app, options);
  stopRoute(app, options);
  patchMetadataRoute(app, options);
  createEnvironmentRoute(app, options);
  retrieveEnvironmentRoute(app, options);
  updateEnvironmentRoute(app, options);
  listEnvironmentsRoute(app, options);
  archiveEnvironmentRoute(app, options);
  deleteEnvironmentRoute(app, options);
  issueKeyRoute(app, options);
  enqueueRoute(app, options);
  healthRoutes(app, options);
}
