// Links to the evidence of a row: both timelines at that position, and the page that lists its name.
import type { RouteLocationRaw } from "vue-router";
import type { RowLink, TableRow } from "../components";
import { baseQuery, baseSpan, longestLocation, queryValue, span } from "../state";

// Parts of a step that run on a device.
const DEVICE_CATEGORIES = new Set(["kernel", "memcpy", "memset", "communication"]);
/** The input shapes after a name. */
const SHAPES_SUFFIX = / \[.*$/;

/** A module by its path, named as in the profiler; torch numbers the modules of a class. */
function eventName(path: string): string {
  const name =
    path
      .replace(/\/\(backward\)$/, "")
      .split("/")
      .pop() ?? "";
  return /_\d+$/.test(name) ? `nn.Module: ${name}` : name;
}

const text = (row: TableRow, column: string) => (typeof row(column) === "string" ? String(row(column)) : "");
/** Of several names, the ones with most calls come first. */
const first = (names: string) => names.split(" + ")[0] ?? names;

/** Rows that only the base has are found with run and base swapped. */
function swapSides(to: RouteLocationRaw): RouteLocationRaw {
  const base = baseQuery.value;
  if (!base || typeof to !== "object" || !("path" in to)) return to;
  const { run: baseId, worker: baseWorker, span: baseSpanId } = base;
  const current = { base: queryValue("run"), base_worker: queryValue("worker"), base_span: queryValue("span") };
  const swappedQuery = { run: baseId, worker: baseWorker, span: baseSpanId, ...current };
  return {
    ...to,
    query: Object.fromEntries(
      Object.entries({ ...to.query, ...swappedQuery }).filter(([, value]) => value !== null && value !== undefined),
    ) as Record<string, string>,
  };
}

/** Return the links of a row of a comparison. */
export function rowLinks(view: string, row: TableRow): RowLink[] {
  const gone = text(row, "status") === "removed";
  const names = text(row, gone ? "base_name" : "new_name") || text(row, "name");
  const name = view === "modules" ? eventName(names) : first(names).replace(SHAPES_SUFFIX, "");
  const views = (gone ? baseSpan.value : span.value)?.views ?? [];
  if (!name) return [];
  const onDevice = view === "kernel" || DEVICE_CATEGORIES.has(text(row, "part"));
  const toLocation = (to: RouteLocationRaw) => (gone ? swapSides(to) : to);
  const page = onDevice ? "kernel" : "operator";
  const links: RowLink[] = [];
  if (views.includes("trace"))
    links.push({ page: "trace", to: toLocation(longestLocation(name, onDevice ? "device" : "host")) });
  if (view === "overview" && views.includes(page))
    links.push({
      page,
      to: toLocation({
        path: `/${page}`,
        query: {
          ...(longestLocation(name, "host") as { query: Record<string, string> }).query,
          longest: undefined,
          where: undefined,
          "is.name": name,
          mark: `${page}:${name}`,
        },
      }),
    });
  return links;
}
