import type { Finding } from "../../api/model";
import { formatDuration, formatRatio } from "../../lib/format";
import { t } from "../../locales";

/** What goes with a finding, or else the most that could: of a step, or of the recording where it marks none. */
export function gainText(finding: Finding, stepped: boolean): string {
  const scope = stepped ? "" : "_in_all";
  const { gain_ns_per_step: gain, most_ns_per_step: bound } = finding;
  if (gain !== null)
    return `${t(`overview.gain${scope}`, { time: formatDuration(gain) })} · ${formatRatio(finding.gain_ratio ?? 0)}`;
  return bound === null ? "" : t(`overview.most${scope}`, { time: formatDuration(bound) });
}
