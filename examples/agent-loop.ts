/**
 * An agent whose tools run on a customer's machine: your loop here, an official worker there. The model is a stub; put yours in its
 * place. With LEASEHOLD_URL, LEASEHOLD_API_KEY and ANTHROPIC_ENVIRONMENT_ID set and a worker polling: npx node examples/agent-loop.ts
 */
// In your project: from 'leasehold/client'.
import { RemoteToolError, RemoteTools } from '../src/client/index.ts';

type ToolCall = { readonly name: string; readonly input: Readonly<Record<string, unknown>> };
/** Without calls it is the agent's last word. */
type Answer = { readonly role: 'assistant'; readonly text: string; readonly calls: readonly ToolCall[] };
type Result = { readonly role: 'tool'; readonly text: string; readonly isError: boolean };
type Message = { readonly role: 'user'; readonly text: string } | Answer | Result;

/** What a model might ask for, one step after the other. */
const SCRIPT: readonly (readonly ToolCall[])[] = [
  [{ name: 'glob', input: { pattern: '**/*' } }],
  [
    {
      name: 'write',
      input: { file_path: 'poem.txt', content: 'The lease lapses;\nanother hand takes up the work.\n' },
    },
  ],
  [
    { name: 'bash', input: { command: 'wc -w < poem.txt' } },
    { name: 'read', input: { file_path: 'poem.txt' } },
  ],
];

/** The stub: a pure function of the conversation, as a model is. */
function model(messages: readonly Message[]): Answer {
  const calls = SCRIPT[messages.filter(({ role }) => role === 'assistant').length] ?? [];
  const counted = messages.find(({ role, text }) => role === 'tool' && /^\d+\s*$/.test(text));
  return { role: 'assistant', text: calls.length > 0 ? '' : `The poem has ${counted?.text.trim()} words.`, calls };
}

const { LEASEHOLD_URL: baseUrl = '', LEASEHOLD_API_KEY: apiKey = '', ANTHROPIC_ENVIRONMENT_ID = '' } = process.env;
const cancel = new AbortController();
process.once('SIGINT', () => cancel.abort(new Error('cancelled')));

const remote = new RemoteTools({ baseUrl, apiKey });
const { signal } = cancel;
const hands = await remote.session(ANTHROPIC_ENVIRONMENT_ID, { title: 'a poem', signal });
try {
  const messages: Message[] = [{ role: 'user', text: 'Write a short poem into a file, and count its words.' }];
  for (;;) {
    const answer = model(messages);
    messages.push(answer);
    if (answer.calls.length === 0) {
      console.log(answer.text);
      await hands.say(answer.text);
      break;
    }
    messages.push(...(await Promise.all(answer.calls.map(run))));
  }
} catch (error) {
  if (!signal.aborted) throw error;
  console.log('cancelled'); // what was open is withdrawn
  process.exitCode = 130;
} finally {
  await hands.close(); // the worker leaves
}

/** One call. What went wrong is the model's to know, but for what ends the loop. */
async function run({ name, input }: ToolCall): Promise<Result> {
  console.log(`> ${name} ${JSON.stringify(input)}`);
  try {
    const { text, isError } = await hands.call(name, input, { timeoutMs: 120_000, signal });
    console.log(text.trimEnd());
    return { role: 'tool', text, isError };
  } catch (error) {
    if (!(error instanceof RemoteToolError) || error.code === 'terminated' || error.code === 'deleted') throw error;
    return { role: 'tool', text: error.message, isError: true };
  }
}
