/** What readers of an environment's events are told. A hint: it may come twice or be lost, and what it is about is to be read. */
export type Hint =
  | { readonly type: 'lock_released'; readonly name: string }
  | { readonly type: 'stop_requested'; readonly workId: string }
  | { readonly type: 'environment_paused' | 'environment_resumed' | 'environment_deleted' }
  /** Word from other replicas may have been lost: all is to be looked at. */
  | { readonly type: 'hints_missed' };

const TOPIC = 'hint:';

/** A hint as a topic of the wake-ups: without a blank, and the same for the same hint. */
export const hintTopic = (environmentId: string, hint: Hint): string =>
  `${TOPIC}${Buffer.from(JSON.stringify([environmentId, hint])).toString('base64url')}`;

/** Who wants to be told the hints of an environment, in this process. */
export function createHints() {
  const byEnvironment = new Map<string, Set<(hint: Hint) => void>>();

  /** All who listen now; whoever leaves because another was told is told no more, and whoever comes then not yet. */
  function tellAll(here: ReadonlySet<(hint: Hint) => void>, hint: Hint): void {
    for (const listener of [...here]) if (here.has(listener)) listener(hint);
  }

  return {
    /** Answers what ends it. */
    listen(environmentId: string, listener: (hint: Hint) => void): () => void {
      const own = (hint: Hint) => listener(hint);
      byEnvironment.set(environmentId, (byEnvironment.get(environmentId) ?? new Set()).add(own));
      return () => {
        const others = byEnvironment.get(environmentId);
        others?.delete(own);
        if (others?.size === 0) byEnvironment.delete(environmentId);
      };
    },

    /** Tells it where the topic is one of a hint. */
    tell(topic: string): void {
      if (!topic.startsWith(TOPIC)) return;
      const told = parse(topic);
      if (told === undefined) return;
      const [environmentId, hint] = told;
      tellAll(byEnvironment.get(environmentId) ?? new Set(), hint);
    },

    /** Tells everybody that others' hints may have been lost. */
    tellMissed(): void {
      for (const here of [...byEnvironment.values()]) tellAll(here, { type: 'hints_missed' });
    },
  };
}

/** Whoever reaches the database can notify: what is no hint is one for nobody. */
function parse(topic: string): [environmentId: string, hint: Hint] | undefined {
  try {
    const parsed = JSON.parse(Buffer.from(topic.slice(TOPIC.length), 'base64url').toString());
    return Array.isArray(parsed) && typeof parsed[1]?.type === 'string' ? (parsed as [string, Hint]) : undefined;
  } catch {
    return undefined;
  }
}
