// The settings that all cards share, and the value with which a value is compared.
import type { SeriesLine } from "../../api";

/** Compare with nothing, with the previous step of the same line, or with the first line of the card. */
export type Comparison = "none" | "previous" | "first";

export interface SampleSettings {
  /** The step, null for the last one. */
  step: number | null;
  comparison: Comparison;
  /** Pixels of the screen per pixel of an image, null to fit. */
  zoom: number | null;
  /** CSS filter of images. */
  filter: string;
  /** Whether texts are shown without Markdown. */
  raw: boolean;
  /** Changes with the data. */
  version: string;
}

export interface SamplePlace {
  run: string;
  line: string;
  tag: string;
  step: number;
}

/** Return the index of the last step at or before `step`, of the first step if none is; -1 without steps. */
export function stepIndex(steps: readonly number[], step: number | null): number {
  if (step === null) return steps.length - 1;
  const after = steps.findIndex((candidate) => candidate > step);
  return after < 0 ? steps.length - 1 : Math.max(0, after - 1);
}

/** Return the place of a value, and the place of the value to compare with, or null. */
export function placesOf(
  lines: readonly SeriesLine[],
  row: number,
  { step, comparison }: Pick<SampleSettings, "step" | "comparison">,
): { shown: SamplePlace; base: SamplePlace | null } | null {
  const line = lines[row];
  const first = lines[0];
  if (!line || !first) return null;
  const place = ({ run, line: name, tag, step: steps }: SeriesLine, index: number) => {
    const at = (steps as number[])[index];
    return at === undefined ? null : { run, line: name, tag, step: at };
  };
  const index = stepIndex(line.step as number[], step);
  const shown = place(line, index);
  if (!shown) return null;
  if (comparison === "previous") return { shown, base: index > 0 ? place(line, index - 1) : null };
  if (comparison === "first" && row > 0)
    return { shown, base: place(first, stepIndex(first.step as number[], shown.step)) };
  return { shown, base: null };
}
