// Rows with position and height in CSS pixels, computed from the tree of tracks. Includes rows outside of the view.
import { matchesFuzzy } from "./fuzzy";
import type { Group, Item } from "./track-tree";

export const LANE_PX = 18;
export const FOLDED_LANE_PX = 3;
const FOLDED_LANES = 6;
const FOLDED_PX = 22;
const COUNTER_PX = 46;
const GROUP_PX = 24;
const WORKER_PX = 28;
/** Space below the lanes of a track. */
const TRACK_GAP_PX = 5;

export interface Branch {
  worker: number;
  label: string;
  groups: Group[];
}

export interface Row {
  key: string;
  kind: "worker" | "group" | "track" | "counter";
  worker: number;
  label: string;
  item: Item | null;
  /** Tracks below this group, for its summary. */
  below: readonly Item[];
  y: number;
  height: number;
  folded: boolean;
  pinned: boolean;
}

export interface LayoutOptions {
  /** Keys whose folding differs from the default. */
  toggled: ReadonlySet<string>;
  pinned: readonly string[];
  /** Keys in manual order; others keep their order. */
  order: readonly string[];
  filter: string;
  /** Tracks to hide because they are empty in the window. */
  hidden: (key: string) => boolean;
}

export interface Layout {
  rows: Row[];
  height: number;
  /** Pinned rows stay on top while the others scroll. */
  pinned: Row[];
  pinnedHeight: number;
  /** Number of tracks hidden by the filter and "hide empty". */
  hiddenCount: number;
}

export function shownLanes(item: Item, folded: boolean): number {
  const lanes = item.track?.lanes ?? 0;
  return folded ? Math.min(lanes, FOLDED_LANES) : lanes;
}

function itemHeight(item: Item, folded: boolean): number {
  if (folded) return FOLDED_PX;
  return item.counter ? COUNTER_PX : shownLanes(item, false) * LANE_PX + TRACK_GAP_PX;
}

/** Sort tracks manually: moved tracks are placed among the positions that they had together. */
export function sortByOrder(items: readonly Item[], order: readonly string[]): Item[] {
  const rank = new Map(order.map((key, index) => [key, index]));
  const moved = items
    .filter((item) => rank.has(item.key))
    .sort((a, b) => (rank.get(a.key) ?? 0) - (rank.get(b.key) ?? 0));
  let next = 0;
  return items.map((item) => (rank.has(item.key) ? (moved[next++] ?? item) : item));
}

function isFolded(key: string, byItself: boolean, toggled: ReadonlySet<string>): boolean {
  return toggled.has(key) !== byItself;
}

export function layOutTracks(branches: readonly Branch[], options: LayoutOptions): Layout {
  const rows: Row[] = [];
  const pins = new Map<string, Row>();
  let leftOut = 0;
  const heads = branches.length > 1;

  const row = (item: Item, worker: number, pinned: boolean): Row => {
    const folded = isFolded(item.key, false, options.toggled);
    const kind = item.counter ? "counter" : "track";
    return {
      key: item.key,
      kind,
      worker,
      label: item.label,
      item,
      below: [],
      y: 0,
      height: itemHeight(item, folded),
      folded,
      pinned,
    };
  };

  for (const branch of branches) {
    const headKey = `${branch.worker}.w`;
    const branchFolded = heads && isFolded(headKey, false, options.toggled);
    const start = rows.length;
    for (const group of branch.groups) {
      const fits = (item: Item) =>
        (!options.filter ||
          matchesFuzzy(`${item.label} ${item.detail} ${group.label} ${heads ? branch.label : ""}`, options.filter)) &&
        !options.hidden(item.key);
      const items = sortByOrder(group.items, options.order).filter(fits);
      leftOut += group.items.length - items.length;
      for (const item of items)
        if (options.pinned.includes(item.key)) pins.set(item.key, row(item, branch.worker, true));
      const free = items.filter((item) => !options.pinned.includes(item.key));
      if (free.length === 0) continue;
      // Ranks are compared by their events; counters would push the second rank out of view.
      const minor = group.minor || (heads && group.items.every((item) => item.counter));
      // A filter shows its matches even in folded groups.
      const folded = isFolded(group.key, minor, options.toggled) && !options.filter;
      rows.push({
        key: group.key,
        kind: "group",
        worker: branch.worker,
        label: group.label,
        item: null,
        below: free,
        y: 0,
        height: GROUP_PX,
        folded,
        pinned: false,
      });
      if (!folded) rows.push(...free.map((item) => row(item, branch.worker, false)));
    }
    if (heads && rows.length > start) {
      const below = rows.slice(start).flatMap((row) => (row.item ? [row.item] : []));
      const head: Row = {
        key: headKey,
        kind: "worker",
        worker: branch.worker,
        label: branch.label,
        item: null,
        below,
        y: 0,
        height: WORKER_PX,
        folded: branchFolded,
        pinned: false,
      };
      rows.splice(start, branchFolded ? rows.length - start : 0, head);
    }
  }
  // In the order in which they were pinned.
  const pinned = options.pinned.flatMap((key) => pins.get(key) ?? []);
  return { rows, height: stackRows(rows), pinned, pinnedHeight: stackRows(pinned), hiddenCount: leftOut };
}

function stackRows(rows: Row[]): number {
  let y = 0;
  for (const row of rows) {
    row.y = y;
    y += row.height;
  }
  return y;
}

/** Return the rows that touch [top, bottom) as [first, last). */
export function rowsBetween(rows: readonly Row[], top: number, bottom: number): readonly [first: number, last: number] {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const candidate = rows[middle];
    if (candidate && candidate.y + candidate.height <= top) low = middle + 1;
    else high = middle;
  }
  let last = low;
  while (last < rows.length && (rows[last]?.y ?? bottom) < bottom) last += 1;
  return [low, last];
}
