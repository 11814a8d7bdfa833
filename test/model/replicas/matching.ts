/** Gives each of these one of those that would do, to each another one; answers one for which there is none left. */
export function unmatched<This, That>(
  these: readonly This[],
  those: readonly That[],
  fits: (one: This, other: That) => boolean,
) {
  const takenBy = new Map<That, This>();
  const place = (one: This, tried: Set<That>): boolean =>
    those.some((other) => {
      if (tried.has(other) || !fits(one, other)) return false;
      tried.add(other);
      const holder = takenBy.get(other);
      if (holder !== undefined && !place(holder, tried)) return false;
      takenBy.set(other, one);
      return true;
    });
  return these.find((one) => !place(one, new Set()));
}
