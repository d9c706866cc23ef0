// A run beside its base: which of its steps begins with which, and how far it is moved for that.
import type { Schemas } from "../api/model";

/** On the timeline, the place of the base among the workers, which count from 0. */
export const BASE = -1;

export const ALIGNMENT_MODES = ["step", "name", "longest"] as const;
export type AlignmentMode = (typeof ALIGNMENT_MODES)[number];
type Step = Schemas["TimelineStep"];

/** Places of two steps that begin together: of the shown run and of the base. */
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
 * The steps to begin together; null where the base has no such step: the traces then begin together.
 * `chosen` is the name of the shown run's step and `beside` the one that it is compared with, null for all of them: the first ones,
 * or the first that both have, stand for them.
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

/** What stands at the place of a step in the other run: as many steps from the pair as the step is from its own. */
export function counterpartStep(
  name: string | null,
  from: readonly Step[],
  to: readonly Step[],
  shift: number,
): string | null {
  const index = from.findIndex((candidate) => candidate.name === name);
  return index < 0 ? null : (to[index + shift]?.name ?? null);
}

/** By how much the base is moved, ns, so that the pair begins together. */
export function alignmentShift(steps: readonly Step[], base: readonly Step[], pair: StepPair | null): number {
  return pair ? (steps[pair.current]?.start_ns ?? 0) - (base[pair.base]?.start_ns ?? 0) : 0;
}
