import { describe, expect, it } from "vitest";
import { formatRanges } from "../../lib/ranges";
import { imbalance, rankDevices, rankMeans } from "./ranks";

const columns = {
  rank: [1, 0],
  worker: ["b", "a"],
  steps: [1, 2],
  total_ns: [20, 20],
  computation_ns: [12, 6],
  communication_ns: [6, 6],
  exposed_ns: [4, 4],
};
const summary = {
  ranks: 2,
  hosts: 1,
  devices: [],
  total_ns: 20,
  computation_ns: 9,
  exposed_ns: 4,
  longest_rank: 1,
  longest_ns: 12,
  shortest_rank: 0,
  shortest_ns: 6,
};

describe("ranks", () => {
  it("keep their order", () => {
    expect(
      rankMeans(columns).map((means) => [
        means.rank,
        means.steps,
        means.total_ns,
        means.computation_ns,
        means.exposed_ns,
      ]),
    ).toEqual([
      [0, 2, 20, 6, 4],
      [1, 1, 20, 12, 4],
    ]);
  });

  it("are empty without data", () => expect(rankMeans({})).toEqual([]));

  it("are imbalanced if one computes much longer than the mean", () => {
    const result = imbalance(summary);
    expect([result?.most.rank, result?.least.rank]).toEqual([1, 0]);
    expect(result?.excess).toBeCloseTo(1 / 3);
  });

  it("with small differences, or a single rank, are balanced", () => {
    expect(imbalance({ ...summary, longest_ns: 9.2 })).toBeNull();
    expect(imbalance({ ...summary, ranks: 1 })).toBeNull();
    expect(imbalance({ ...summary, computation_ns: null, longest_rank: null, longest_ns: null })).toBeNull();
  });

  it("have devices, some without facts", () => {
    const result = rankDevices({
      rank: [0, 1],
      host: ["h", "h"],
      id: [0, 3],
      name: ["A100", ""],
      memory_bytes: [8, null],
      compute_capability: ["8.0", null],
      utilization: [0.5, null],
    });
    expect(
      result.map((device) => [
        device.rank,
        device.id,
        device.memory_bytes,
        device.compute_capability,
        device.utilization,
      ]),
    ).toEqual([
      [0, 0, 8, "8.0", 0.5],
      [1, 3, 0, "", null],
    ]);
  });
});

describe("number ranges", () => {
  it.each([
    [[], ""],
    [[4], "4"],
    [[2, 1], "1, 2"],
    [[0, 1, 2, 7, 9, 10, 11], "0–2, 7, 9–11"],
  ] as const)("%j", (numbers, text) => expect(formatRanges(numbers)).toBe(text));
});
