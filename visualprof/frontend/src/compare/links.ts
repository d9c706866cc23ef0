// Where the evidence of a row is: both timelines at that place, and the page that has its name.
import type { RouteLocationRaw } from "vue-router";
import type { RowLink, RowOf } from "../components";
import { base_query, base_span, longest_location, query_value, span } from "../state";

// Parts of a step that a device works on.
const ON_DEVICE = new Set(["kernel", "memcpy", "memset", "communication"]);
/** Input shapes behind a name. */
const SHAPES = / \[.*$/;

/** A module by its path, as the profiler calls it; torch numbers those of a class. */
function event_name(path: string): string {
  const name =
    path
      .replace(/\/\(backward\)$/, "")
      .split("/")
      .pop() ?? "";
  return /_\d+$/.test(name) ? `nn.Module: ${name}` : name;
}

const text = (row: RowOf, column: string) => (typeof row(column) === "string" ? String(row(column)) : "");
/** Of several names, those with most calls first. */
const first = (names: string) => names.split(" + ")[0] ?? names;

/** What only the base has is found with the two in each other's place. */
function swapped(to: RouteLocationRaw): RouteLocationRaw {
  const base = base_query.value;
  if (!base || typeof to !== "object" || !("path" in to)) return to;
  const { run: base_id, worker: base_worker, span: base_span_id } = base;
  const own = { base: query_value("run"), base_worker: query_value("worker"), base_span: query_value("span") };
  const place = { run: base_id, worker: base_worker, span: base_span_id, ...own };
  return {
    ...to,
    query: Object.fromEntries(
      Object.entries({ ...to.query, ...place }).filter(([, value]) => value !== null && value !== undefined),
    ) as Record<string, string>,
  };
}

/** Of a row of the view's comparison. */
export function row_links(view: string, row: RowOf): RowLink[] {
  const gone = text(row, "status") === "removed";
  const names = text(row, gone ? "base_name" : "new_name") || text(row, "name");
  const name = view === "modules" ? event_name(names) : first(names).replace(SHAPES, "");
  const there = (gone ? base_span.value : span.value)?.views ?? [];
  if (!name) return [];
  const on_device = view === "kernel" || ON_DEVICE.has(text(row, "part"));
  const place = (to: RouteLocationRaw) => (gone ? swapped(to) : to);
  const page = on_device ? "kernel" : "operator";
  const links: RowLink[] = [];
  if (there.includes("trace"))
    links.push({ page: "trace", to: place(longest_location(name, on_device ? "device" : "host")) });
  if (view === "overview" && there.includes(page))
    links.push({
      page,
      to: place({
        path: `/${page}`,
        query: {
          ...(longest_location(name, "host") as { query: Record<string, string> }).query,
          longest: undefined,
          where: undefined,
          "is.name": name,
        },
      }),
    });
  return links;
}
