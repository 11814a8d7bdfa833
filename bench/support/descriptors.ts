/** What a process has open beside its sockets. */
const OTHERS = 200;

/** Each side of a socket is a file of its process's. Throws before anything is measured that could not be. */
export function needSockets(count: number): void {
  const report = process.report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  const limit = Number(report.userLimits?.open_files?.soft ?? Number.POSITIVE_INFINITY);
  const needed = count + OTHERS;
  if (limit < needed) throw new Error(`${count} sockets need "ulimit -n ${needed}" or more, here it is ${limit}`);
}
