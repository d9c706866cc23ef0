// The address is the store: anything that a user may want to share or return to is a query parameter.
import { computed, type WritableComputedRef } from "vue";
import type { LocationQueryRaw, RouteLocationRaw } from "vue-router";
import { router } from "../router";

export const SELECTION_KEYS = [
  "run",
  "worker",
  "span",
  "step",
  "step_range",
  "base",
  "base_worker",
  "base_span",
  "phase",
] as const;

type Patch = Record<string, string | null>;

let pending: { patch: Patch; push: boolean } | null = null;

export function queryValue(name: string): string | null {
  const value = router.currentRoute.value.query[name];
  return typeof value === "string" && value !== "" ? value : null;
}

function mergeQuery(patch: Patch): LocationQueryRaw {
  const entries = Object.entries({ ...router.currentRoute.value.query, ...patch });
  return Object.fromEntries(entries.filter(([, value]) => value !== null && value !== ""));
}

/**
 * Change some parameters. Calls in the same tick are merged into one navigation, because each alone would undo the
 * other.
 */
export function patchQuery(patch: Patch, push = false): void {
  if (pending) {
    Object.assign(pending.patch, patch);
    pending.push ||= push;
    return;
  }
  pending = { patch: { ...patch }, push };
  queueMicrotask(() => {
    if (!pending) return;
    const location = { query: mergeQuery(pending.patch) };
    const navigate = pending.push ? router.push : router.replace;
    pending = null;
    void navigate(location);
  });
}

/** Return a parameter of the address as a ref. The fallback is never written, so that addresses stay short. */
export function useParameter(name: string, fallback: string): WritableComputedRef<string> {
  return computed({
    get: () => queryValue(name) ?? fallback,
    set: (value) => patchQuery({ [name]: value === fallback ? null : value }),
  });
}

const rememberedQueries = new Map<string, LocationQueryRaw>();

router.afterEach((to) => {
  const pageParameters = Object.entries(to.query).filter(
    ([key]) => !(SELECTION_KEYS as readonly string[]).includes(key),
  );
  rememberedQueries.set(to.path, Object.fromEntries(pageParameters));
});

/** Set the query with which a page is opened first. */
export function rememberQuery(path: string, query: LocationQueryRaw): void {
  rememberedQueries.set(path, query);
}

/** Return the address of a tab: with the current selection, and with the page's own parameters as they were last. */
export function pageLocation(id: string): RouteLocationRaw {
  const selection = Object.entries(router.currentRoute.value.query).filter(([key]) =>
    (SELECTION_KEYS as readonly string[]).includes(key),
  );
  return { path: `/${id}`, query: { ...rememberedQueries.get(`/${id}`), ...Object.fromEntries(selection) } };
}

/** Where links to a page lead: a place, an entry of it named by a parameter, and the place if nothing is selected. */
const MAIN_PLACES: Record<
  string,
  { place: string; entry?: string; selectedBy?: readonly string[]; otherwise?: string }
> = {
  "/operator": { place: "operator", entry: "is.name" },
  "/kernel": { place: "kernel", entry: "is.name" },
  "/runtime": { place: "runtime", entry: "is.name" },
  "/idle": { place: "whatif_replay", selectedBy: ["change"], otherwise: "idle_causes" },
  "/distributed": { place: "rank_cards", entry: "rank" },
  "/memory": { place: "events", selectedBy: ["is.name", "alive_at"], otherwise: "peak" },
};

/** Return the `mark` (link-target.ts) of a link to a page that names no place itself. */
export function markOf(path: string, query: LocationQueryRaw): string | undefined {
  const main = MAIN_PLACES[path];
  if (!main || query["chart"] || query["table"] || query["mark"]) return undefined;
  if (main.selectedBy && !main.selectedBy.some((name) => query[name])) return main.otherwise;
  const entry = main.entry && query[main.entry];
  return typeof entry === "string" && entry ? `${main.place}:${entry}` : main.place;
}

/** Return a link of the server ("/operator?sort=..") with the current selection. It marks what it leads to. */
export function linkedLocation(link: string): RouteLocationRaw {
  const target = router.resolve(link);
  const query = { ...router.currentRoute.value.query, ...target.query };
  const parameters = Object.entries(query).filter(
    ([key]) => key in target.query || (SELECTION_KEYS as readonly string[]).includes(key),
  );
  const mark = markOf(target.path, target.query as LocationQueryRaw);
  return { path: target.path, query: { ...Object.fromEntries(parameters), ...(mark ? { mark } : {}) } };
}
