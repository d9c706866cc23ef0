import { describe, expect, it } from "vitest";
import type { HeatmapAnswer } from "../../api";
import { paintCell, createScale, colorStops } from "./heat-colors";
import { cellAt, mapSize } from "./heat-data";
import {
  findBin,
  isFullViewport,
  moveViewport,
  roundOutward,
  viewportText,
  parseViewport,
  tickPositions,
  fullViewport,
  clampViewport,
  zoomViewport,
} from "./heat-viewport";
import { alignmentOffsets } from "./timelines";

const size = { rows: 100, columns: 40 };
const fullView = fullViewport(size);

describe("the viewport", () => {
  it("never leaves the map", () => {
    expect(clampViewport({ row: -5, rows: 500, column: 39, columns: 10 }, size)).toEqual({
      row: 0,
      rows: 100,
      column: 30,
      columns: 10,
    });
    expect(moveViewport({ row: 90, rows: 10, column: 0, columns: 10 }, 20, -3, size)).toEqual({
      row: 90,
      rows: 10,
      column: 0,
      columns: 10,
    });
  });

  it("keeps the position under the pointer when zooming", () => {
    const zoomedView = zoomViewport(fullView, { row: 50, column: 10 }, 0.5, size);
    expect(zoomedView).toEqual({ row: 25, rows: 50, column: 5, columns: 20 });
    expect((50 - zoomedView.row) / zoomedView.rows).toBe((50 - fullView.row) / fullView.rows);
    expect(zoomViewport(zoomedView, { row: 50, column: 10 }, 2, size)).toEqual(fullView);
    expect(isFullViewport(zoomViewport(zoomedView, { row: 50, column: 10 }, 10, size), size)).toBe(true);
  });

  it("of a small map is at most that map", () =>
    expect(clampViewport({ row: 0, rows: 1, column: 0, columns: 1 }, { rows: 2, columns: 1 })).toEqual({
      row: 0,
      rows: 2,
      column: 0,
      columns: 1,
    }));

  it("is stored in the address as whole positions, and restored", () => {
    expect(viewportText(fullView, size)).toBe("");
    const text = viewportText({ row: 3.4, rows: 10, column: 0, columns: 40 }, size);
    expect(text).toBe("3~11~0~40");
    expect(parseViewport(text, size)).toEqual(roundOutward({ row: 3.4, rows: 10, column: 0, columns: 40 }));
    for (const odd of ["", "1~2", "a~1~0~1", "1~0~0~1", "-1~4~0~4", "1e999~4~0~4"])
      expect(parseViewport(odd, size)).toEqual(fullView);
  });

  it("has ticks with a minimum distance", () => {
    expect(tickPositions(0, 100, 100, 18, "halves")).toEqual([0, 32, 64, 96]);
    expect(tickPositions(7, 20, 200, 64, "tens")).toEqual([10, 20]);
    expect(tickPositions(0, 3, 300, 64, "tens")).toEqual([0, 1, 2]);
  });

  it("finds the bin of a position", () =>
    expect([-1, 0, 3, 4, 99].map((at) => findBin([0, 4, 8], at))).toEqual([-1, 0, 0, 1, 2]));
});

describe("colors", () => {
  const gray = [
    [0, 0, 0],
    [100, 100, 100],
    [200, 200, 200],
  ] as const;

  it("go from the low end to the high one, and unknown values are transparent", () => {
    const bytes = paintCell([0, 10, 20, 99, -5, null], { low: 0, high: 20 }, gray);
    expect(Array.from({ length: 6 }, (_, i) => [bytes[4 * i], bytes[4 * i + 3]])).toEqual([
      [0, 255],
      [100, 255],
      [200, 255],
      [200, 255],
      [0, 255],
      [0, 0],
    ]);
  });

  it("of an excess have their middle at the median", () => {
    expect(createScale(-10, 40, true)).toEqual({ low: -40, high: 40 });
    expect(createScale(5, 5, false)).toEqual({ low: 5, high: 6 });
    expect(createScale(-1, 1, true, 1000)).toEqual({ low: -50, high: 50 });
    expect(createScale(null, null, true)).toEqual({ low: -1, high: 1 });
  });

  it("do not exaggerate noise", () => {
    expect(createScale(1000, 1010, false, 1000)).toEqual({ low: 1000, high: 1100 });
    expect(createScale(1000, 1500, false, 1000)).toEqual({ low: 1000, high: 1500 });
  });

  it.each(["light", "dark"] as const)("have 256 shades in the %s theme", (theme) =>
    expect(new Set(colorStops(theme, "times").map(String)).size).toBeGreaterThan(128),
  );
});

describe("a cell", () => {
  const answer = {
    ranks_shown: {
      place: [4, 6],
      ranks: [2, 1],
      rank: [40, 60],
      worker: ["a", "b"],
      host: ["h", ""],
      group: ["", ""],
      mean_ns: [5, null],
    },
    steps_shown: { place: [0, 1], steps: [1, 1], step: ["x", "y"], last: ["x", "y"], median_ns: [1, 2] },
    cells_ns: [1, 2, 3, null],
  } as unknown as HeatmapAnswer;

  it("is found at any position inside it", () => {
    expect(cellAt(answer, 5, 1)).toMatchObject({
      value: 2,
      rank: 40,
      host: "h",
      step: "y",
      row: 4,
      rows: 2,
      column: 1,
      columns: 1,
      median: 2,
    });
    expect(cellAt(answer, 6, 1)).toMatchObject({ value: null, rank: 60, mean: null, rows: 1 });
    expect([cellAt(answer, 3, 0), cellAt(answer, 7, 0), cellAt(answer, 4, 2)]).toEqual([null, null, null]);
  });

  it("is limited to the area of its answer", () =>
    expect(mapSize(answer)).toEqual({ row: 4, rows: 3, column: 0, columns: 2 }));
});

it("timelines are moved by the clock differences from collectives", () => {
  const aligned = [
    { worker: "a", collective_residual_ns: 0 },
    { worker: "b", collective_residual_ns: 1200 },
    { worker: "c", collective_residual_ns: null },
    { worker: "d", collective_residual_ns: -7 },
  ];
  expect(alignmentOffsets(aligned, (worker) => "dcba".indexOf(worker))).toBe("2.-1200~0.7");
});
