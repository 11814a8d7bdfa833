/** Who wants to be told that there may be work, or an event, by topic. */
export function createListeners() {
  const byTopic = new Map<string, Set<() => void>>();
  return {
    /** Answers what ends it. One listener is told once a call, and may be told without cause. */
    listen(topics: readonly string[], listener: () => void): () => void {
      const own = () => listener();
      for (const topic of topics) byTopic.set(topic, (byTopic.get(topic) ?? new Set()).add(own));
      return () => {
        for (const topic of topics) {
          const others = byTopic.get(topic);
          others?.delete(own);
          if (others?.size === 0) byTopic.delete(topic);
        }
      };
    },
    /** Without a topic: everybody. */
    wake(topic?: string): void {
      const woken =
        topic === undefined ? [...byTopic.values()].flatMap((here) => [...here]) : (byTopic.get(topic) ?? []);
      for (const listener of new Set(woken)) listener();
    },
  };
}
