import { describe, expect, it } from "vitest";
import { number_ranges } from "../../lib/ranges";
import { imbalance, rank_means } from "./ranks";

const columns = { rank: [1, 0], worker: ["b", "a"], steps: [1, 2], total_ns: [20, 20], computation_ns: [12, 6], communication_ns: [6, 6], exposed_ns: [4, 4] };

describe("ranks", () => {
  it("stand in their order", () => {
    expect(rank_means(columns).map((one) => [one.rank, one.steps, one.total_ns, one.computation_ns, one.exposed_ns])).toEqual([[0, 2, 20, 6, 4], [1, 1, 20, 12, 4]]);
  });

  it("of none are none", () => expect(rank_means({})).toEqual([]));

  it("are uneven when one computes much longer than the mean", () => {
    const found = imbalance(rank_means(columns));
    expect([found?.most.rank, found?.least.rank]).toEqual([1, 0]);
    expect(found?.excess).toBeCloseTo(1 / 3);
  });

  it("that differ little, or stand alone, are not", () => {
    expect(imbalance(rank_means({ ...columns, computation_ns: [10, 10, 10.2] }))).toBeNull();
    expect(imbalance(rank_means({ rank: [0], total_ns: [1], computation_ns: [1] }))).toBeNull();
  });
});

describe("numbers in few words", () => {
  it.each([[[], ""], [[4], "4"], [[2, 1], "1, 2"], [[0, 1, 2, 7, 9, 10, 11], "0–2, 7, 9–11"]] as const)("%j", (numbers, text) => expect(number_ranges(numbers)).toBe(text));
});
