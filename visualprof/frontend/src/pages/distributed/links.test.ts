import { describe, expect, it } from "vitest";
import { doublings, largestDoubling, median, rankIndex, toMatrix } from "./links";

const columns = { row: [0, 2], column: [1, 0], slower: [1, 4], bandwidth_bytes_per_s: [400, 100] };

describe("the color of a link", () => {
  it("shows the log2 of its latency relative to the typical one", () =>
    expect(doublings(columns, "latency")).toEqual([0, 2]));

  it("shows how far it is below the median bandwidth", () => {
    expect(doublings({ bandwidth_bytes_per_s: [400, 200, 50] }, "bandwidth")).toEqual([-1, 0, 2]);
    expect(median([4, null, 1, 2])).toBe(2);
    expect(median([1, 3])).toBe(2);
  });

  it("is neutral if no links are comparable", () =>
    expect(doublings({ slower: [null, 2] }, "latency")).toEqual([0, 1]));

  it("does not exaggerate small differences", () => {
    expect(largestDoubling([0.01, -0.02])).toBe(1);
    expect(largestDoubling([0.01, -3])).toBe(3);
  });
});

it("links are at the cell of their ends; other cells are empty", () =>
  expect([...toMatrix(columns, 3)]).toEqual([-1, 0, -1, -1, -1, -1, 1, -1, -1]));

it("a pair of ranks is found by number, host or neighbors", () => {
  expect(rankIndex({ ends: ["3", "5"], ends_are: "rank" }, 5, null)).toBe(1);
  expect(rankIndex({ ends: ["a", "b"], ends_are: "host" }, 5, "b")).toBe(1);
  expect(rankIndex({ ends: ["0-3", "4-7", "8"], ends_are: "ranks" }, 5, null)).toBe(1);
  expect(rankIndex({ ends: ["0-3", "4-7", "8"], ends_are: "ranks" }, 8, null)).toBe(2);
  expect(rankIndex({ ends: ["3"], ends_are: "rank" }, 9, null)).toBe(-1);
});
