// Where a measurement leads, what a change is compared by, and in which order series stand.
import type { RouteLocationRaw } from "vue-router";
import type { Cell, Columns } from "../../api/model";
import { ratio } from "../../lib/format";

export interface Where {
  run: Cell | undefined;
  worker: Cell | undefined;
  span: Cell | undefined;
  /** Of a report; null of a recording. */
  batch: Cell | undefined;
}

type ListText = (ids: readonly string[]) => string;

/** The page of one measurement. */
export function opened(one: Where, listText: ListText): RouteLocationRaw {
  if (typeof one.batch === "number")
    return {
      path: "/evaluation",
      query: { reports: listText([String(one.run)]), point: String(one.run), batch: String(one.batch) },
    };
  return { path: "/overview", query: { run: String(one.run), worker: String(one.worker), span: String(one.span) } };
}

export interface Change {
  of: Cell | undefined;
  run: Cell | undefined;
  before: Cell | undefined;
  change: Cell | undefined;
  ratio: Cell | undefined;
}

/** The last change of a series and the page that compares the runs on both sides of it; null without one. */
export function comparison(
  one: Change,
  listText: ListText,
): { kind: "worse" | "better"; share: string; to: RouteLocationRaw } | null {
  if (typeof one.run !== "string" || typeof one.before !== "string" || typeof one.ratio !== "number") return null;
  const to =
    one.of === "reports"
      ? { path: "/evaluation", query: { reports: listText([one.before, one.run]) } }
      : { path: "/overview", query: { run: one.run, base: one.before } };
  return {
    kind: one.change === "worse" ? "worse" : "better",
    share: `${one.ratio > 0 ? "+" : "−"}${ratio(Math.abs(one.ratio))}`,
    to,
  };
}

const rank = (value: Cell | undefined): number | string =>
  typeof value === "number" ? value : typeof value === "string" ? value.toLowerCase() : Number.NEGATIVE_INFINITY;

/** Places of the rows whose name has every word of a search; in the server's order where none is chosen. */
export function ordered(columns: Columns | undefined, sort: string, order: "asc" | "desc", search: string): number[] {
  const names = columns?.["series"] ?? [];
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const places = Array.from({ length: names.length }, (_, place) => place).filter((place) =>
    words.every((word) => String(names[place]).toLowerCase().includes(word)),
  );
  const by = columns?.[sort];
  if (!by) return places;
  const sign = order === "asc" ? 1 : -1;
  return places.sort((a, b) => {
    const [one, other] = [rank(by[a]), rank(by[b])];
    return one === other ? a - b : sign * (one < other ? -1 : 1);
  });
}
