// Align a run with its base: which steps start together, and how far the base is moved.
import type { Schemas } from "../api/model";

/** The base's index among the workers on the timeline; workers count from 0. */
export const BASE = -1;

export const ALIGNMENT_MODES = ["step", "name", "longest"] as const;
export type AlignmentMode = (typeof ALIGNMENT_MODES)[number];
type Step = Schemas["TimelineStep"];

/** Indexes of two steps that start together: in the current run and in the base. */
export interface StepPair {
  current: number;
  base: number;
}

function longestStep(steps: readonly Step[]): number {
  return steps.reduce(
    (best, candidate, index) => (candidate.duration_ns > (steps[best]?.duration_ns ?? -1) ? index : best),
    -1,
  );
}

/**
 * Return the steps that start together, or null if the base has no such step; the traces then start together. `chosen`
 * is the name of the current run's step and `baseName` the one it is compared with. Null stands for all steps: the
 * first ones, or the first that both have, are aligned.
 */
export function pairSteps(
  steps: readonly Step[],
  base: readonly Step[],
  mode: AlignmentMode,
  chosen: string | null,
  baseName: string | null,
): StepPair | null {
  const indexOfName = (name: string | undefined) => base.findIndex((candidate) => candidate.name === name);
  const at = steps.findIndex((candidate) =>
    chosen !== null ? candidate.name === chosen : mode !== "name" || indexOfName(candidate.name) >= 0,
  );
  const pair =
    mode === "longest"
      ? { current: longestStep(steps), base: longestStep(base) }
      : {
          current: at,
          base:
            mode === "name" ? indexOfName(steps[at]?.name) : chosen === null ? at : indexOfName(baseName ?? undefined),
        };
  return steps[pair.current] && base[pair.base] ? pair : null;
}

/** Return the step at the same position in the other run: as many steps from the pair as this step is. */
export function counterpartStep(
  name: string | null,
  from: readonly Step[],
  to: readonly Step[],
  shift: number,
): string | null {
  const index = from.findIndex((candidate) => candidate.name === name);
  return index < 0 ? null : (to[index + shift]?.name ?? null);
}

/** Return by how much the base is moved, in ns, so that the pair starts together. */
export function alignmentShift(steps: readonly Step[], base: readonly Step[], pair: StepPair | null): number {
  return pair ? (steps[pair.current]?.start_ns ?? 0) - (base[pair.base]?.start_ns ?? 0) : 0;
}
