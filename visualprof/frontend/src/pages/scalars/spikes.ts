// Slow steps on a chart, and the recording that shows them.
import type { RecordedRange, Run, ScalarLine } from "../../api";

export interface Spike {
  run: string;
  tag: string;
  x: number;
  step: number;
  value: number;
  median: number;
}

/** Tags whose spikes lead to recordings. */
const STEP_TIME =
  /(step|iter(ation)?|batch)[^a-z0-9]*(time|duration|ms|latency)|(time|duration|latency)[^a-z0-9]+(per[^a-z0-9]+)?(step|iter(ation)?|batch)/i;

export const isStepTime = (tag: string): boolean => STEP_TIME.test(tag);

/** Return the spikes of lines, the largest ones relative to their neighbors. */
export function spikesOf(lines: readonly ScalarLine[], limit: number): Spike[] {
  const all = lines.flatMap(({ run, tag, spikes }) =>
    (spikes?.x ?? []).flatMap((x, index) => {
      const [step, value, median] = [spikes?.step[index], spikes?.value[index], spikes?.median[index]];
      if (x === null || step === undefined || value === undefined || median === undefined) return [];
      return [{ run, tag, x, step, value, median }];
    }),
  );
  const excess = ({ value, median }: Spike) => (median > 0 ? value / median : Infinity);
  return all.sort((a, b) => excess(b) - excess(a)).slice(0, limit);
}

/** Return the recording of a run that is nearest to a step; its distance is 0 if it contains the step. */
export function nearestRecording(
  recordings: readonly RecordedRange[],
  run: string,
  step: number,
): { recording: RecordedRange; distance: number } | null {
  const candidates = recordings.flatMap((recording) => {
    const { first_step: first, last_step: last } = recording;
    if (recording.run !== run || first === null || last === null) return [];
    return [{ recording, distance: Math.max(first - step, step - last, 0) }];
  });
  return candidates.sort((a, b) => a.distance - b.distance)[0] ?? null;
}

/** Return the name of a step within a recording, null if the recording has no such step. */
export function stepName(run: Run | undefined, { worker, span }: RecordedRange, step: number): string | null {
  const steps = run?.workers.find(({ id }) => id === worker)?.spans.find(({ id }) => id === span)?.steps ?? [];
  return steps.find((name) => Number(/(\d+)$/.exec(name)?.[1]) === step) ?? null;
}

/** Return log directory and name of a run for a command; several log directories are prefixes of the ids. */
export function runPlace(logdirs: readonly string[], id: string): { logdir: string; run: string } {
  if (logdirs.length <= 1) return { logdir: logdirs[0] ?? "DIR", run: id };
  const [prefix = "", ...rest] = id.split("/");
  const logdir = logdirs.find((path) => path.replace(/\/+$/, "").split("/").pop() === prefix);
  return logdir ? { logdir, run: rest.join("/") || "." } : { logdir: "DIR", run: id };
}
