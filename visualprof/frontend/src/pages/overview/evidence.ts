// Links from a finding or a change to its evidence: a page, the timeline, and the replay.
import type { RouteLocationRaw } from "vue-router";
import { shortChange } from "../../lib/short-change";
import { pageLabel, t } from "../../locales";
import { isPageAvailable, linkedLocation } from "../../state";

/** A range of the timeline, in ns since the first event. */
interface Extent {
  start_ns?: number | null;
  end_ns?: number | null;
  track?: string | number | null;
}

function pageOf(link: string): string {
  return link.replace(/^\//, "").split("?")[0] ?? "";
}

/** Whether a link to a page leads somewhere; one to this page needs a place on it. */
export function hasLink(link: string | null): link is string {
  if (!link) return false;
  return isPageAvailable(pageOf(link)) && (link.includes("?") || pageOf(link) !== "overview");
}

export function linkText(link: string): string {
  const id = pageOf(link);
  return id === "overview" ? t("overview.show") : t("overview.open_page", { page: pageLabel(id) });
}

/** Return a link to the evidence on the timeline, or null if there is none. */
export function timelineLink(extent: Extent): RouteLocationRaw | null {
  const { start_ns = null, end_ns = null, track = null } = extent;
  if (start_ns === null || end_ns === null || !isPageAvailable("trace")) return null;
  return linkedLocation(`/trace?at_span=${[start_ns, end_ns, track ?? []].flat().join("~")}`);
}

/** Return a link to the same replay, where it can be varied, or null if there is none. */
export function replayLink(change: string, shortNames?: Readonly<Record<string, string>>): RouteLocationRaw | null {
  if (change.startsWith("rank[") && isPageAvailable("distributed"))
    return linkedLocation(`/distributed?mark=ranks_replay&change=${encodeURIComponent(change)}`);
  return change && isPageAvailable("idle")
    ? linkedLocation(`/idle?change=${encodeURIComponent(shortChange(change, shortNames))}`)
    : null;
}
