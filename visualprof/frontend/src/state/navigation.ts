// The groups of pages that the side bar lists, and their keys.
import { computed } from "vue";
import { offlineReport } from "../api";
import { router } from "../router";
import { catalogLoaded, findView, isAccountPage, isPageAvailable, profilePages } from "./catalog";
import { currentUser, linkExpiresNs } from "./current-user";
import { DATA_PAGES, dataPages } from "./data-pages";
import { loaded, runs } from "./runs";
import { run, span } from "./selection";

export interface NavigationPage {
  id: string;
  /** Whether the page shows a part of the page above it. */
  nested: boolean;
  /** The number key that opens the page, or "". */
  key: string;
}

export interface NavigationGroup {
  id: "start" | "training" | "profile" | "benchmarks" | "other";
  pages: readonly NavigationPage[];
}

/** The pages of a profile. Their place is also their number key, so that a key always opens the same page. */
const PROFILE_ORDER = [
  "overview",
  "trace",
  "operator",
  "kernel",
  "flame",
  "runtime",
  "memory",
  "distributed",
  "idle",
  "graph",
  "profile",
] as const;
const NESTED: ReadonlySet<string> = new Set(["kernel", "flame", "runtime"]);
const BENCHMARK_ORDER = ["run", "evaluation", "models", "cases"] as const;
const MAX_KEY = 9;

/** Pages with a letter after `g`. */
export const PAGE_LETTERS: Readonly<Record<string, string>> = {
  r: "run",
  o: "models",
  e: "evaluation",
  c: "cases",
  t: "trend",
  m: "agents",
  g: "graph",
  h: "runs",
  q: "query",
};

/** Return the page of a number key. */
export function keyedPage(key: number): string | undefined {
  return key <= MAX_KEY ? PROFILE_ORDER[key - 1] : undefined;
}

const plain = (id: string): NavigationPage => ({ id, nested: false, key: "" });

const known: readonly string[] = PROFILE_ORDER;

/** All pages of the profile group, whether or not the selected file has data for them. */
const profileIds = computed(() => [
  ...known.filter((id) => findView(id) && router.hasRoute(id)),
  ...profilePages.value.filter((id) => !known.includes(id)),
]);

function listProfilePages(): NavigationPage[] {
  const noProfile = runs.value.length > 0 && run.value?.data === true && !run.value.live && !span.value;
  if (noProfile) return profileIds.value.includes("graph") ? [plain("graph")] : [];
  const shown = profileIds.value.filter((id) =>
    loaded.value && runs.value.length === 0 ? id === "overview" || id === "graph" : isPageAvailable(id),
  );
  return shown.map((id) => {
    const key = known.indexOf(id) + 1;
    return { id, nested: NESTED.has(id) && shown.includes("operator"), key: key > 0 && key <= MAX_KEY ? `${key}` : "" };
  });
}

/** Whether there is a list to choose from. A report and a link show a single run. */
export const hasRunList = computed(() => runs.value.length > 1 && !offlineReport && linkExpiresNs.value === null);

/** Viewers of a single run cannot create runs. */
function listOtherPages(): NavigationGroup[] {
  const isViewer = linkExpiresNs.value !== null;
  if (offlineReport) return [];
  const benchmarks = isViewer ? ["evaluation"] : BENCHMARK_ORDER;
  const others = isViewer ? [] : ["trend", "agents", ...(currentUser.value?.role === "admin" ? ["people"] : [])];
  return [
    { id: "benchmarks", pages: benchmarks.map(plain) },
    { id: "other", pages: others.map(plain) },
  ];
}

/** The groups of the side bar. Empty until the server has listed its views. */
export const navigation = computed<NavigationGroup[]>(() =>
  catalogLoaded.value
    ? [
        { id: "start" as const, pages: hasRunList.value ? [plain("runs")] : [] },
        { id: "training" as const, pages: (dataPages.value ?? []).map(plain) },
        { id: "profile" as const, pages: listProfilePages() },
        ...listOtherPages(),
      ].filter((group) => group.pages.length > 0)
    : [],
);

/** Whether the address names a page that the user may open. */
export function isPage(id: string): boolean {
  return (
    isAccountPage(id) ||
    (id === "runs" && hasRunList.value) ||
    profileIds.value.includes(id) ||
    DATA_PAGES.includes(id) ||
    listOtherPages().some((group) => group.pages.some((page) => page.id === id))
  );
}
