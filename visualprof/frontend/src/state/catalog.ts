// The pages and their order: the server's views, then pages that show nothing of a profile.
import { computed, shallowRef } from "vue";
import { address, get, offlineReport, type ViewInfo, type ViewsAnswer } from "../api";
import { router } from "../router";
import { linkExpiresNs } from "./current-user";
import { span, viewable } from "./selection";

const views = shallowRef<ViewInfo[]>([]);

export async function loadCatalog(): Promise<void> {
  const answer = await get<ViewsAnswer>(address("views"));
  if (answer) views.value = answer.body.views;
}

export function findView(id: string): ViewInfo | null {
  return views.value.find((view) => view.name === id) ?? null;
}

const showsProfile = (view: ViewInfo | null) => view?.subject === "trace" || view?.subject === "run";
const showsReports = (view: ViewInfo) => view.subject === "reports";
// Their tables are part of another view's page.
const EMBEDDED_VIEWS = new Set([
  "runtime",
  "launch",
  "critical",
  "whatif",
  "ranks",
  "modules",
  "roofline",
  "sequences",
  "heatmap",
  "captured",
  "findings",
  "compiled",
  "counters",
  "serving",
  "calls",
  "collectives",
]);

/** Whether a page needs no run: the pages that show or upload models, and those that create runs. */
export function needsNoRun(id: string): boolean {
  return !showsProfile(findView(id));
}

/** Whether a page has selectors. Pages that show nothing of the selected run have none. */
export function hasSelectors(id: string): boolean {
  const view = findView(id);
  return view !== null && !showsReports(view);
}

/** Whether a page belongs to the current user's menu. */
export function isAccountPage(id: string): boolean {
  return id === "account" || id === "people";
}

export interface Tab {
  id: string;
  /** The name: memory is the device's or, for a run without devices, the host's. */
  label: string;
  /** False if the selected file has no data for this page. */
  enabled: boolean;
  /** Whether it starts another group of tabs. */
  startsGroup: boolean;
}

/** Empty until the server has listed its views. */
export const tabs = computed<Tab[]>(() => {
  const paged = views.value.filter(
    (view) => router.hasRoute(view.name) || (showsProfile(view) && !EMBEDDED_VIEWS.has(view.name)),
  );
  const names = (list: ViewInfo[]) => list.map((view) => view.name);
  // Viewers of a single run cannot create runs.
  const [run, agents] =
    linkExpiresNs.value === null && !offlineReport
      ? [
          ["run", "models"],
          ["cases", "trend", "agents"],
        ]
      : [[], []];
  const reports = names(paged.filter(showsReports));
  const ids = [...names(paged.filter((view) => !showsReports(view))), ...run, ...reports, ...agents];
  const enabled = (id: string) => needsNoRun(id) || !viewable.value || (span.value?.views.includes(id) ?? true);
  const onHost = span.value !== null && !span.value.views.includes("kernel");
  return views.value.length === 0
    ? []
    : ids.map((id) => ({
        id,
        label: id === "memory" && onHost ? "host_memory" : id,
        enabled: enabled(id),
        startsGroup: id === (run[0] ?? reports[0]),
      }));
});
