import { nextTick, ref } from "vue";
import type { Finding } from "../../api/model";
import { formatDuration, formatRatio } from "../../lib/format";
import { t } from "../../locales";

/** Return the savings of a finding, or their upper bound: per step, or of the recording if it has no steps. */
export function gainText(finding: Finding, stepped: boolean): string {
  const scope = stepped ? "" : "_in_all";
  const { gain_ns_per_step: gain, most_ns_per_step: bound } = finding;
  if (gain !== null)
    return `${t(`overview.gain${scope}`, { time: formatDuration(gain) })} · ${formatRatio(finding.gain_ratio ?? 0)}`;
  return bound === null ? "" : t(`overview.most${scope}`, { time: formatDuration(bound) });
}

/** The finding that a link of the plan leads to. */
export const markedFinding = ref("");

/** Scroll to a finding and mark it. */
export async function showFinding(id: string): Promise<void> {
  markedFinding.value = id;
  await nextTick();
  document.getElementById(`finding-${id}`)?.scrollIntoView({ block: "center", behavior: "smooth" });
}
