import { type ControlClient, createControlClient } from '../client/control-client.ts';
import { createWorkClient, type WorkClient } from '../client/work-client.ts';
import { FailedError, UsageError } from './command.ts';
import type { Context } from './context.ts';
import { urlProblem } from './options.ts';

/** The options of all that ask the server. */
export type Asked = {
  readonly url?: string | undefined;
  readonly json?: true | undefined;
  readonly quiet?: true | undefined;
  readonly environment?: string | undefined;
};

/** What a command that asks the server works with. */
export type Desk = {
  readonly context: Context;
  readonly url: string;
  readonly control: ControlClient;
  readonly work: WorkClient;
  /** Of the environment that was named. */
  readonly environmentId: () => Promise<string>;
  /** The id for an id, or for the name of an environment that is not archived. */
  readonly idOf: (nameOrId: string) => Promise<string>;
  /** One answer: as it came for programs, in words for people; `id` is all that --quiet leaves. */
  readonly show: (answer: unknown, inWords: () => string, id?: string) => void;
  /** The same of a page; that it is not the last one is told apart from it. */
  readonly showPage: (page: { readonly next_page: string | null }, inWords: () => string) => void;
  readonly isJson: boolean;
};

const DEFAULT_URL = 'http://127.0.0.1:8080';
/** Somebody waits at the prompt: a server that is away for longer is told of. */
const RETRIES_MAX = 2;
/** Any other text is a name, also one that begins as an id does. */
const ENVIRONMENT_ID = /^env_[\w-]{24}$/;
const PAGE_ENVIRONMENTS_MAX = 1_000;

/** Throws UsageError where it is not told which server, or who asks. */
export function openDesk(context: Context, options: Asked): Desk {
  const { environment } = context;
  const { url, apiKey, problems } = readAccess(environment, options.url);
  if (problems.length > 0) throw new UsageError(problems);
  const access = { baseUrl: url, apiKey, retriesMax: RETRIES_MAX };
  const work = createWorkClient(access);
  const idOf = async (nameOrId: string) => (ENVIRONMENT_ID.test(nameOrId) ? nameOrId : find(work, nameOrId));
  const show: Desk['show'] = (answer, inWords, id) => {
    if (options.json) context.print(`${JSON.stringify(answer, null, 2)}\n`);
    else context.print(options.quiet && id !== undefined ? `${id}\n` : inWords());
  };
  return {
    context,
    url,
    control: createControlClient(access),
    work,
    idOf,
    async environmentId() {
      const named = options.environment ?? environment.ANTHROPIC_ENVIRONMENT_ID;
      if (named) return idOf(named);
      throw new UsageError(['--environment, or ANTHROPIC_ENVIRONMENT_ID, must name an environment']);
    },
    show,
    showPage(page, inWords) {
      show(page, inWords);
      if (page.next_page === null || options.json) return;
      context.tell(`leasehold: there is more: --limit, or --page ${page.next_page}`);
    },
    isJson: options.json ?? false,
  };
}

/** Which server, and as who; set but empty means not set. The key is for the environment alone: arguments can be read by every user of a machine. */
export function readAccess(environment: Context['environment'], given: string | undefined) {
  const problems: string[] = [];
  const url = given ?? (environment.LEASEHOLD_URL || DEFAULT_URL);
  const urlIs = urlProblem(given === undefined ? 'LEASEHOLD_URL' : '--url', url);
  if (urlIs !== undefined) problems.push(urlIs);
  const apiKey = environment.LEASEHOLD_API_KEY ?? '';
  if (!/^[\x21-\x7e]+$/.test(apiKey)) problems.push('LEASEHOLD_API_KEY must be set to an API key of the server');
  return { url, apiKey, problems };
}

async function find(work: WorkClient, name: string): Promise<string> {
  let page: string | null = null;
  do {
    const query = { limit: PAGE_ENVIRONMENTS_MAX, ...(page === null ? {} : { page }) };
    const answer: Awaited<ReturnType<WorkClient['listEnvironments']>> = await work.listEnvironments(query);
    const found = answer.data.find((environment) => environment.name === name);
    if (found !== undefined) return found.id;
    page = answer.next_page;
  } while (page !== null);
  throw new FailedError(`there is no environment ${JSON.stringify(name)}: leasehold environments list tells them`);
}
