/** Who wants to be told that there may be work, by topic. */
export function createListeners() {
  const listeners = new Map<() => void, ReadonlySet<string>>();
  return {
    /** Answers what ends it. One listener is told once a call, and may be told without cause. */
    listen(topics: readonly string[], listener: () => void): () => void {
      const own = () => listener();
      listeners.set(own, new Set(topics));
      return () => void listeners.delete(own);
    },
    /** Without a topic: everybody. */
    wake(topic?: string): void {
      for (const [listener, topics] of [...listeners]) if (topic === undefined || topics.has(topic)) listener();
    },
  };
}
