// Recordings on the horizontal axis of scalars.
import type { RecordedRange, ScalarLine } from "../api";
import { valueAt } from "./bands";
import { columnOf } from "./plot";
import type { Axis } from "./positions";

export interface RecordedBand {
  recording: RecordedRange;
  from: number;
  to: number;
}

/**
 * Return where recordings are on an axis: by their steps, on time axes through the times of a line's steps, else by
 * their own time. Recordings with neither are left out.
 */
export function recordedBands(
  recordings: readonly RecordedRange[],
  lines: readonly ScalarLine[],
  axis: Axis,
): RecordedBand[] {
  return recordings.flatMap((recording) => {
    const range = rangeOf(recording, lines, axis);
    return range && Number.isFinite(range[0]) && Number.isFinite(range[1])
      ? [{ recording, from: range[0], to: range[1] }]
      : [];
  });
}

function rangeOf(
  { run, first_step: first, last_step: last, start_s: start, end_s: end }: RecordedRange,
  lines: readonly ScalarLine[],
  axis: Axis,
): [number, number] | null {
  if (axis === "wall" && start !== null && end !== null) return [start, end];
  if (first === null || last === null) return null;
  if (axis === "step") return [first, last];
  const line = lines.find((candidate) => candidate.run === run);
  if (!line) return null;
  const [steps, x] = [columnOf(line, "step"), columnOf(line, "x")];
  const from = valueAt(steps, x, first);
  const to = valueAt(steps, x, last);
  return from === null || to === null ? null : [from, to];
}
