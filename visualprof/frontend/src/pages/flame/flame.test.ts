import { describe, expect, it } from "vitest";
import { toCollapsedStacks, toSpeedscope } from "./files";
import { frameKind } from "./kinds";
import { matchBase, layOutFrames, framePath, search, buildTree } from "../../charts/flame-tree";

// main (10) calls b (6, called second) and a (3, called first); b calls a (2).
const COLUMNS = {
  name: ["main", "b;x", "a", "a"],
  parent: [-1, 0, 0, 1],
  depth: [0, 1, 1, 2],
  calls: [1, 2, 1, 4],
  self_ns: [1, 4, 3, 2],
  total_ns: [10, 6, 3, 2],
  event: [0, 5, 1, 6],
};

describe("a flame graph", () => {
  const tree = buildTree(COLUMNS);

  it("places frames above their caller, with the longest or the first call on the left", () => {
    const heavy = layOutFrames(tree, true);
    expect([...heavy.x]).toEqual([0, 0, 0.6, 0]);
    expect([...heavy.width]).toEqual([1, 0.6, 0.3, 0.2]);
    expect(heavy.rows).toEqual([[0], [1, 2], [3]]);
    const timely = layOutFrames(tree, false);
    expect([...timely.x]).toEqual([0, 0.3, 0, 0.3]);
    expect(timely.rows).toEqual([[0], [2, 1], [3]]);
  });

  it("finds frames, and counts nested matches once", () => {
    expect(search(tree, "A")).toEqual({ frames: new Set([0, 2, 3]), share: 1 });
    expect(search(tree, "b;")).toEqual({ frames: new Set([1]), share: 0.6 });
    expect(search(tree, "nothing").share).toBe(0);
    expect(framePath(tree, 3)).toEqual([0, 1, 3]);
  });

  it("matches a base by names, or by the stable part of a name", () => {
    const numbered = buildTree({ ...COLUMNS, name: ["t.py(12): main", "Linear_1", "Linear_2", "x"] });
    const before = buildTree({
      ...COLUMNS,
      name: ["t.py(10): main", "Linear_1", "Linear_0", "y"],
      total_ns: [20, 8, 4, 2],
    });
    expect(matchBase(numbered, before, 0.5)).toEqual([10, 4, 2, 0]);
  });

  it("matches across a frame that only one of the two runs has", () => {
    const around = buildTree({
      name: ["launch.py(1): run", ...COLUMNS.name],
      parent: [-1, 0, 1, 1, 2],
      depth: [0, 1, 2, 2, 3],
      calls: [1, 1, 2, 1, 4],
      self_ns: [0, ...COLUMNS.self_ns],
      total_ns: [10, ...COLUMNS.total_ns],
      event: [0, 1, 6, 2, 7],
    });
    expect(matchBase(around, tree, 1)).toEqual([10, 10, 6, 3, 2]);
    expect(matchBase(tree, around, 1)).toEqual([10, 6, 3, 2]);
  });

  it("is exported for other programs", () => {
    expect(toCollapsedStacks(tree)).toBe("main 1\nmain;b:x 4\nmain;a 3\nmain;b:x;a 2\n");
    const { shared, profiles } = JSON.parse(toSpeedscope(tree, "run")) as {
      shared: { frames: { name: string }[] };
      profiles: { unit: string; endValue: number; samples: number[][]; weights: number[] }[];
    };
    expect(shared.frames.map((frame) => frame.name)).toEqual(["main", "b;x", "a"]);
    expect(profiles[0]).toMatchObject({
      unit: "nanoseconds",
      endValue: 10,
      samples: [[0], [0, 1], [0, 2], [0, 1, 2]],
      weights: [1, 4, 3, 2],
    });
  });

  it("distinguishes the user's code from libraries", () => {
    const kinds = [
      "train.py(3): step",
      "torch/nn/modules/module.py(1): _call_impl",
      "<built-in function linear>",
      "Linear_0",
      "(others)",
    ];
    expect(kinds.map((name) => frameKind(name, "python"))).toEqual(["own", "library", "builtin", "module", "others"]);
    expect([
      frameKind("aten::mm", "operator"),
      frameKind("MmBackward0", "operator"),
      frameKind("forward", "module"),
    ]).toEqual(["operator", "backward", "module"]);
  });
});
