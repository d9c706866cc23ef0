import type { Finding } from "../../api/model";
import { duration } from "../../lib/format";
import { t } from "../../locales";

/** What a finding may save: of a step, or of the recording where it marks none. */
export function gain_text(finding: Finding, stepped: boolean): string {
  return t(stepped ? "overview.gain" : "overview.gain_in_all", { time: duration(finding.gain_ns_per_step ?? 0) });
}
