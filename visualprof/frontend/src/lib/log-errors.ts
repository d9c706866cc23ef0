// The lines of a log that explain a failure.

const TRACEBACK = /^\s*(Traceback \(most recent call last\)|Fatal Python error|thread '.*' panicked|Caused by:)/;
const ERROR = /\b(\w*Error|\w*Exception|error|fatal|failed|killed|abort(ed)?|out of memory|segmentation fault)\b/i;
const AGENT_LINE = /^\[agent\] /;

/**
 * Return at most `count` lines: the end of the last traceback, otherwise the lines up to the last error, otherwise the
 * last lines. Lines after an error, such as those of a clean-up, are of no use.
 */
export function errorLines(lines: readonly string[], count: number): string[] {
  const own = lines.filter((line) => line.trim() !== "" && !AGENT_LINE.test(line));
  const last = own.length ? own : lines;
  const traceback = last.findLastIndex((line) => TRACEBACK.test(line));
  if (traceback >= 0) {
    const end = last.findIndex((line, i) => i > traceback && /^\S/.test(line));
    return last.slice(traceback, end < 0 ? undefined : end + 1).slice(-count);
  }
  const error = last.findLastIndex((line) => ERROR.test(line));
  return last.slice(0, error < 0 ? undefined : error + 1).slice(-count);
}

const CANDIDATE = /^\[advice\] candidate (\d+) of (\d+): (.+)$/gm;

/** Return the last candidate that the log of an advice job names, with its number and their count. */
export function currentCandidate(text: string): { n: number; of: number; name: string } | null {
  const last = [...text.matchAll(CANDIDATE)].at(-1);
  return last ? { n: Number(last[1]), of: Number(last[2]), name: last[3] ?? "" } : null;
}
