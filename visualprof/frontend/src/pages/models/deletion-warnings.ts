// Warnings before something is deleted.
import type { LossesAnswer } from "../../api/model";
import { formatCount } from "../../lib/format";
import { displayText } from "../../lib/text";
import { t } from "../../locales";

/** Return the question whether to delete it, with the consequences. */
export function deletionQuestion({ versions, jobs, children, aliases, evaluations }: LossesAnswer): string {
  const lost = [
    jobs.length > 0 ? t("models.lost_jobs", { n: formatCount(jobs.length) }, jobs.length) : "",
    children.length > 0 ? t("models.lost_children", { versions: children.map(displayText).join(", ") }) : "",
    aliases.length > 0 ? t("models.lost_aliases", { aliases: aliases.join(", ") }) : "",
    evaluations.length > 0
      ? t("models.lost_evaluations", { n: formatCount(evaluations.length) }, evaluations.length)
      : "",
  ].filter(Boolean);
  return [
    t("models.delete_sure", { versions: versions.map(displayText).join(", ") || t("models.no_version") }),
    ...lost,
  ].join(" ");
}
