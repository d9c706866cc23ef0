// The pages: the server's views, and pages that show nothing of a profile.
import { computed, ref, shallowRef } from "vue";
import { address, get, type ViewInfo, type ViewsAnswer } from "../api";
import { router } from "../router";
import { span, viewable } from "./selection";

const views = shallowRef<ViewInfo[]>([]);
/** The page for SQL: it shows the selected run, and no view of the server. */
const QUERY_PAGE = "query";
const runsQueries = ref(false);
const hasQueryPage = computed(() => runsQueries.value && router.hasRoute(QUERY_PAGE));
const isQueryPage = (id: string) => id === QUERY_PAGE && hasQueryPage.value;

/** Whether the server has listed its views. */
export const catalogLoaded = computed(() => views.value.length > 0);

export async function loadCatalog(): Promise<void> {
  const answer = await get<ViewsAnswer>(address("views"));
  if (!answer) return;
  runsQueries.value = answer.body.queries;
  views.value = answer.body.views;
}

export function findView(id: string): ViewInfo | null {
  return views.value.find((view) => view.name === id) ?? null;
}

const showsProfile = (view: ViewInfo | null) => view?.subject === "trace" || view?.subject === "run";
const showsReports = (view: ViewInfo) => view.subject === "reports";
// Their tables are part of another view's page.
const EMBEDDED_VIEWS = new Set([
  "launch",
  "critical",
  "whatif",
  "ranks",
  "modules",
  "roofline",
  "sequences",
  "heatmap",
  "heap_ranks",
  "captured",
  "findings",
  "plan",
  "compiled",
  "counters",
  "serving",
  "calls",
  "collectives",
]);

/** Views that a page shows besides the one of its name. It has data if one of them has. */
const FURTHER_VIEWS: Readonly<Record<string, readonly string[]>> = { idle: ["whatif"] };

/** Whether a page needs no run: the pages that show or upload models, and those that create runs. */
export function needsNoRun(id: string): boolean {
  return !isQueryPage(id) && !showsProfile(findView(id));
}

/** Whether a page has selectors. Pages that show nothing of the selected run have none. */
export function hasSelectors(id: string): boolean {
  const view = findView(id);
  return isQueryPage(id) || (view !== null && !showsReports(view));
}

/** Whether a page belongs to the current user's menu. */
export function isAccountPage(id: string): boolean {
  return id === "account" || id === "people";
}

/** The views of a profile that have a page, in the order of the server, and the page for SQL. */
export const profilePages = computed(() => [
  ...views.value
    .filter((view) => showsProfile(view) && (router.hasRoute(view.name) || !EMBEDDED_VIEWS.has(view.name)))
    .map((view) => view.name),
  ...(hasQueryPage.value ? [QUERY_PAGE] : []),
]);

/** Pages that few files have. */
const RARE_PAGES = new Set(["profile", "snapshot"]);

/** Whether the selected file can have data for a page. All pages can while the file is not read yet, except rare ones. */
export function isPageAvailable(id: string): boolean {
  if (id === QUERY_PAGE) return hasQueryPage.value;
  if (needsNoRun(id)) return router.hasRoute(id);
  const views = [id, ...(FURTHER_VIEWS[id] ?? [])];
  return viewable.value ? views.some((view) => span.value?.views.includes(view)) : !RARE_PAGES.has(id);
}
