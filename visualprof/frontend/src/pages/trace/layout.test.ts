import { describe, expect, it } from "vitest";
import { matchesFuzzy } from "./fuzzy";
import { laneBox, laneBoxes } from "./lanes";
import { layOutTracks, sortByOrder, rowsBetween, type LayoutOptions } from "./layout";
import type { Counter, Meta, Track } from "./model";
import { buildTrackTree, type TrackTexts } from "./track-tree";

const words: TrackTexts = {
  device: (id) => `Device ${id}`,
  process: (id) => `Process ${id}`,
  annotations: (name) => `Annotations ${name}`,
  graphs: (name) => `Graphs ${name}`,
  track: (name) => name,
  counter: (name) => name,
  counters: "Counters",
  other: "Other",
  unnamed: "unnamed",
};

function track(id: number, more: Partial<Track> = {}): Track {
  return {
    id,
    kind: "thread",
    name: `thread ${id}`,
    process: "",
    pid: "1",
    tid: String(id),
    device: null,
    stream: null,
    lanes: 2,
    events: 10,
    group: 0,
    group_lane: 0,
    ...more,
  };
}

function meta(tracks: Track[], counters: Counter[] = []): Meta {
  return {
    version: "v",
    duration_ns: 1000,
    epoch_ns: null,
    tile_buckets: 256,
    categories: [],
    strings: 0,
    tracks,
    counters,
    steps: [],
    minimap: {},
    warnings: [],
  };
}

const plain: LayoutOptions = { toggled: new Set(), pinned: [], order: [], filter: "", hidden: () => false };
const counter: Counter = { id: 9, name: "memory", process: "", samples: 3, min: 0, max: 5 };
const trace = meta(
  [
    track(0),
    track(1),
    track(2, { kind: "stream", name: "7", pid: "0", device: 0, stream: 7, lanes: 1 }),
    track(3, { pid: "Spans", events: 1 }),
  ],
  [counter],
);
const branches = [{ worker: 0, label: "rank0", groups: buildTrackTree(trace, trace.counters, 0, words) }];

describe("tree", () => {
  it("groups by device, then process, then counters, and puts tracks of single events last", () => {
    expect(
      branches[0]?.groups.map((group) => [group.label, group.items.map((item) => item.label), group.minor]),
    ).toEqual([
      ["Device 0", ["stream 7"], false],
      ["Process 1", ["thread 0", "thread 1"], false],
      ["Counters", ["memory"], false],
      ["Other", ["thread 3"], true],
    ]);
  });
});

describe("layout", () => {
  it("stacks rows without gaps or overlap", () => {
    const { rows, height } = layOutTracks(branches, plain);
    rows.reduce((y, row) => (expect(row.y).toBe(y), y + row.height), 0);
    expect(height).toBe(rows.reduce((sum, row) => sum + row.height, 0));
    expect(rows.map((row) => row.label)).toEqual([
      "Device 0",
      "stream 7",
      "Process 1",
      "thread 0",
      "thread 1",
      "Counters",
      "memory",
      "Other",
    ]);
  });

  it("folds groups and tracks, and shows their summary", () => {
    const { rows } = layOutTracks(branches, { ...plain, toggled: new Set([branches[0]?.groups[1]?.key ?? "", "0.2"]) });
    expect(rows.slice(0, 3).map((row) => [row.label, row.folded])).toEqual([
      ["Device 0", false],
      ["stream 7", true],
      ["Process 1", true],
    ]);
    expect(laneBoxes(rows[2] as (typeof rows)[0]).map((box) => box.track.id)).toEqual([0, 1]);
  });

  it("pins tracks in the order of pinning and removes them from their group", () => {
    const { rows, pinned, pinnedHeight } = layOutTracks(branches, { ...plain, pinned: ["0.9", "0.0"] });
    expect(pinned.map((row) => row.key)).toEqual(["0.9", "0.0"]);
    expect(pinnedHeight).toBe(pinned.reduce((sum, row) => sum + row.height, 0));
    expect(rows.some((row) => row.key === "0.0")).toBe(false);
  });

  it("finds tracks in folded groups, and counts hidden ones", () => {
    const { rows, hiddenCount: leftOut } = layOutTracks(branches, { ...plain, filter: "thread 3" });
    expect(rows.map((row) => row.label)).toEqual(["Other", "thread 3"]);
    expect(leftOut).toBe(4);
  });

  it("adds a head per worker if there are several", () => {
    const both = [...branches, { worker: 1, label: "rank1", groups: buildTrackTree(trace, trace.counters, 1, words) }];
    const heads = (toggled: string[]) =>
      layOutTracks(both, { ...plain, toggled: new Set(toggled) }).rows.filter(
        (row) => row.kind === "worker" || row.worker === 1,
      ).length;
    expect(layOutTracks(both, plain).rows[0]).toMatchObject({ kind: "worker", label: "rank0" });
    expect(heads(["1.w"])).toBe(2);
  });

  it("folds counters if several workers are shown", () => {
    const both = [...branches, { worker: 1, label: "rank1", groups: buildTrackTree(trace, trace.counters, 1, words) }];
    const counters = layOutTracks(both, plain).rows.filter((row) => row.label === "Counters");
    expect(counters.map((row) => row.folded)).toEqual([true, true]);
    expect(
      layOutTracks(both, { ...plain, toggled: new Set([counters[0]?.key ?? ""]) }).rows.filter(
        (row) => row.label === "memory",
      ).length,
    ).toBe(1);
  });

  it("keeps the order of tracks that were not moved manually", () => {
    const items = branches[0]?.groups[1]?.items ?? [];
    expect(sortByOrder(items, ["0.1", "0.0"]).map((item) => item.key)).toEqual(["0.1", "0.0"]);
    expect(sortByOrder(items, ["0.5"]).map((item) => item.key)).toEqual(["0.0", "0.1"]);
  });

  it("finds the visible rows and the position of a lane", () => {
    const { rows } = layOutTracks(branches, plain);
    const [first, last] = rowsBetween(rows, 80, 120);
    expect(rows.slice(first, last).map((row) => row.label)).toEqual(["thread 0", "thread 1"]);
    const deep = laneBox(rows[3] as (typeof rows)[0], 0, 1);
    expect(deep?.top).toBeGreaterThan(laneBox(rows[3] as (typeof rows)[0], 0, 0)?.top ?? 0);
    expect(laneBox(rows[3] as (typeof rows)[0], 77, 0)).toBeNull();
  });
});

describe("matchesFuzzy", () => {
  it("finds words in any order and letters in order", () => {
    expect(matchesFuzzy("thread 425 (python3)", "pyth 425")).toBe(true);
    expect(matchesFuzzy("thread 1553 (UBQueueTasks0)", "ubqt")).toBe(true);
    expect(matchesFuzzy("stream 7", "stream 8")).toBe(false);
    expect(matchesFuzzy("anything", "")).toBe(true);
  });
});
