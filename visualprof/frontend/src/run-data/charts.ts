// The charts of the page of scalars: one per tag, those that a user made, and those that a program defined.
import type { LayoutChart } from "../api";
import { groupTags } from "./lines";

export interface Margin {
  value: string;
  lower: string;
  upper: string;
}

export interface Chart {
  key: string;
  title: string;
  /** Tags on the left axis. */
  left: readonly string[];
  /** Tags on an axis of their own. */
  right: readonly string[];
  /** Lines with bands; their tags are also in `left`. */
  margins: readonly Margin[];
  /** Index among the user's charts. */
  own?: number;
  /** Group that the user chose. */
  group?: string;
}

export interface ChartGroup {
  /** Empty for pinned tags. */
  name: string;
  charts: readonly Chart[];
  closed?: boolean;
}

/** A chart that a user made, as in the page address. */
export interface UserChart {
  title: string;
  group: string;
  left: readonly string[];
  right: readonly string[];
}

const MAX_USER_CHARTS = 100;
const MAX_TAGS = 50;
const MAX_QUANTIFIERS = 3;
const MAX_MATCHED_CHARACTERS = 300;
const MATCH_BUDGET_MS = 300;

const textsOf = (value: unknown): string[] => (Array.isArray(value) ? value.map(String).slice(0, MAX_TAGS) : []);

/** Parse the charts in the page address; invalid ones are left out. */
export function parseUserCharts(text: string): UserChart[] {
  try {
    const parsed: unknown = JSON.parse(text || "[]");
    return (Array.isArray(parsed) ? parsed : [])
      .filter((entry): entry is unknown[] => Array.isArray(entry))
      .slice(0, MAX_USER_CHARTS)
      .map(([title, group, left, right]) => ({
        title: typeof title === "string" ? title : "",
        group: typeof group === "string" ? group : "",
        left: textsOf(left),
        right: textsOf(right),
      }))
      .filter(({ left, right }) => left.length + right.length > 0);
  } catch {
    return [];
  }
}

export const userChartsText = (charts: readonly UserChart[]): string =>
  charts.length > 0 ? JSON.stringify(charts.map(({ title, group, left, right }) => [title, group, left, right])) : "";

export const tagsOf = ({ left, right }: Pick<Chart, "left" | "right">): string[] => [...new Set([...left, ...right])];

const ofTag = (tag: string, key = tag): Chart => ({ key, title: tag, left: [tag], right: [], margins: [] });

/**
 * Return the tags that a pattern of a layout matches from their start, as TensorBoard does. Layouts come from files, so
 * a pattern that may take long is compared as plain text, and matching stops after some time.
 */
export function tagsMatching(pattern: string, tags: readonly string[], now = () => performance.now()): string[] {
  if (tags.includes(pattern)) return [pattern];
  const quantifiers = pattern.replace(/\\./g, "").match(/[*+?{]/g)?.length ?? 0;
  if (quantifiers > MAX_QUANTIFIERS || /\)[*+?{]/.test(pattern)) return [];
  let expression: RegExp;
  try {
    expression = new RegExp(`^(?:${pattern})`);
  } catch {
    return [];
  }
  const end = now() + MATCH_BUDGET_MS;
  return tags.filter((tag) => tag.length <= MAX_MATCHED_CHARACTERS && now() < end && expression.test(tag));
}

function ofLayout(chart: LayoutChart, index: number, tags: readonly string[]): Chart {
  const margins = chart.margins.filter(({ value }) => tags.includes(value));
  const matched = chart.patterns.flatMap((pattern) => tagsMatching(pattern, tags));
  const banded = margins.flatMap(({ value, lower, upper }) => [value, lower, upper]);
  const left = [...new Set([...matched, ...banded])].slice(0, MAX_TAGS);
  return { key: `layout ${index}`, title: chart.title, left, right: [], margins };
}

/** Group charts: pinned tags, the user's charts, the layouts' charts, and all tags by the part before the first slash. */
export function groupCharts(options: {
  tags: readonly string[];
  pins: readonly string[];
  own: readonly UserChart[];
  layouts: readonly LayoutChart[];
  /** Name of the group of charts without one. */
  ownGroup: string;
}): ChartGroup[] {
  const { tags, pins, own, layouts, ownGroup } = options;
  const groups = new Map<string, Chart[]>();
  const closed = new Set<string>();
  const add = (name: string, chart: Chart) => groups.set(name, [...(groups.get(name) ?? []), chart]);
  own.forEach(({ title, group, left, right }, index) =>
    add(group || ownGroup, { key: `own ${index}`, title, left, right, margins: [], own: index, group }),
  );
  layouts.forEach((layout, index) => {
    const chart = ofLayout(layout, index, tags);
    const name = layout.category || ownGroup;
    if (chart.left.length > 0) add(name, chart);
    if (layout.closed) closed.add(name);
  });
  const byTag = groupTags(tags, pins).map(({ name, tags: members }) => ({
    name,
    charts: members.map((tag) => ofTag(tag, name === "" ? `pin ${tag}` : tag)),
  }));
  const made = [...groups].map(([name, charts]) => ({ name, charts, closed: closed.has(name) }));
  const pinned = byTag.filter(({ name }) => name === "");
  return [...pinned, ...made, ...byTag.filter(({ name }) => name !== "")];
}
