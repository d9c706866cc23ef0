// Which pages there are and in which order: the server's views, then those that show nothing of a profile.
import { computed, shallowRef } from "vue";
import { address, get, offlineReport, type ViewInfo, type ViewsAnswer } from "../api";
import { router } from "../router";
import { linkEndsNs } from "./current-user";
import { span, viewable } from "./selection";

const views = shallowRef<ViewInfo[]>([]);

export async function loadCatalog(): Promise<void> {
  const answer = await get<ViewsAnswer>(address("views"));
  if (answer) views.value = answer.body.views;
}

export function viewOf(id: string): ViewInfo | null {
  return views.value.find((view) => view.name === id) ?? null;
}

const ofProfile = (view: ViewInfo | null) => view?.subject === "trace" || view?.subject === "run";
const ofReports = (view: ViewInfo) => view.subject === "reports";
// Their tables stand on the page of another view.
const WITHIN = new Set([
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

/** Whether a page is there without a run: that of a model, to show one or to be given one, and what makes runs. */
export function standsAlone(id: string): boolean {
  return !ofProfile(viewOf(id));
}

/** Pages that show nothing of the selected run have no use for its selectors. */
export function hasSelectors(id: string): boolean {
  const view = viewOf(id);
  return view !== null && !ofReports(view);
}

/** Pages of whoever is logged in; the menu with their name leads there. */
export function isPersonal(id: string): boolean {
  return id === "account" || id === "people";
}

export interface Tab {
  id: string;
  /** What it is called: memory is the device's or, of a run without devices, the host's. */
  label: string;
  /** False when the selected file has nothing for this page. */
  enabled: boolean;
  /** Begins another group of tabs. */
  apart: boolean;
}

/** None until the server has said which views it has. */
export const tabs = computed<Tab[]>(() => {
  const paged = views.value.filter((view) => router.hasRoute(view.name) || (ofProfile(view) && !WITHIN.has(view.name)));
  const names = (list: ViewInfo[]) => list.map((view) => view.name);
  // Who came by a link to one run makes none.
  const [run, agents] =
    linkEndsNs.value === null && !offlineReport
      ? [
          ["run", "models"],
          ["cases", "trend", "agents"],
        ]
      : [[], []];
  const reports = names(paged.filter(ofReports));
  const ids = [...names(paged.filter((view) => !ofReports(view))), ...run, ...reports, ...agents];
  const enabled = (id: string) => standsAlone(id) || !viewable.value || (span.value?.views.includes(id) ?? true);
  const onHost = span.value !== null && !span.value.views.includes("kernel");
  return views.value.length === 0
    ? []
    : ids.map((id) => ({
        id,
        label: id === "memory" && onHost ? "host_memory" : id,
        enabled: enabled(id),
        apart: id === (run[0] ?? reports[0]),
      }));
});
