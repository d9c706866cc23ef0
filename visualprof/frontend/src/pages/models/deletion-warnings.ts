// What somebody should know before something is removed.
import type { LossesAnswer } from "../../api/model";
import { count } from "../../lib/format";
import { visible } from "../../lib/text";
import { t } from "../../locales";

/** Asks whether to remove it, and says what is left without it. */
export function question({ versions, jobs, children, aliases, evaluations }: LossesAnswer): string {
  const lost = [
    jobs.length > 0 ? t("models.lost_jobs", { n: count(jobs.length) }, jobs.length) : "",
    children.length > 0 ? t("models.lost_children", { versions: children.map(visible).join(", ") }) : "",
    aliases.length > 0 ? t("models.lost_aliases", { aliases: aliases.join(", ") }) : "",
    evaluations.length > 0 ? t("models.lost_evaluations", { n: count(evaluations.length) }, evaluations.length) : "",
  ].filter(Boolean);
  return [
    t("models.delete_sure", { versions: versions.map(visible).join(", ") || t("models.no_version") }),
    ...lost,
  ].join(" ");
}
