import type { Cell, Finding, FindingsAnswer } from "../../api/model";
import { fillText } from "../../lib/fill-text";
import { formatCell, formatDuration, formatRatio } from "../../lib/format";
import { t, textOr } from "../../locales";
import { showTarget } from "../../state/link-target";

type Remark = FindingsAnswer["remarks"][number];

/** Remarks that speak against "no known problem"; the others only tell where the time goes. */
const DOUBTS = ["cut_off", "uneven_steps", "slow_first_step", "device_busy"];

/** Return the most important reason not to say that a run without findings has no problem. */
export function mainDoubt(remarks: readonly Remark[]): Remark | null {
  return remarks.find((remark) => DOUBTS.includes(remark.id)) ?? null;
}

/** Return the text of a finding or remark with its numbers. Its shares are those of the step, or of the recording. */
export function evidenceText(
  answer: FindingsAnswer,
  stepped: boolean,
  { id, evidence, variant }: Pick<Finding, "evidence"> & { id: string; variant?: string },
): string {
  const values: Record<string, Cell | undefined> = evidence;
  const usual = textOr(`finding.${id}.text`, "");
  const text = variant ? textOr(`finding.${id}.${variant}`, usual) : usual;
  return fillText(answer.served ? textOr(`finding_served.${id}`, text) : text, (key) =>
    key === "the_step"
      ? t(stepped ? "overview.the_step" : "overview.the_recording")
      : values[key] === null || values[key] === undefined
        ? null
        : formatCell(answer.kinds?.[key] ?? "text", values[key]),
  );
}

/** Return the savings of a finding, or their upper bound: per step, or of the recording if it has no steps. */
export function gainText(finding: Finding, stepped: boolean): string {
  const scope = stepped ? "" : "_in_all";
  const { gain_ns_per_step: gain, most_ns_per_step: bound } = finding;
  if (gain !== null)
    return `${t(`overview.gain${scope}`, { time: formatDuration(gain) })} · ${formatRatio(finding.gain_ratio ?? 0)}`;
  return bound === null ? "" : t(`overview.most${scope}`, { time: formatDuration(bound) });
}

/** Return whether all changes together save more than the best of them alone. */
export function savesMoreTogether({ together, findings }: FindingsAnswer): boolean {
  const best = Math.max(0, ...findings.map((finding) => finding.gain_ns_per_step ?? 0));
  return together !== null && together.findings > 1 && together.gain_ns > 1.01 * best;
}

/** Scroll to a finding and mark it. */
export function showFinding(id: string): void {
  showTarget("findings", id);
}
