import { describe, expect, it } from "vitest";
import type { GraphAnswer } from "../../../api/graph";
import { Graph } from "../graph";
import { flat, residual, transformer, unusual } from "../../../../tests/samples";
import { LEFT_RIGHT, TOP_DOWN, type Direction } from "./direction";
import { NestedLayout } from "./nested";
import { buildPicture, type Picture } from "./picture";
import { BACK, STUB } from "./problem";

function allOpen(graph: Graph): Set<number> {
  return new Set(Array.from({ length: graph.groups }, (_, g) => graph.nodes + g));
}

function layOut(
  answer: GraphAnswer,
  direction: Direction,
  open?: (graph: Graph) => Set<number>,
): { graph: Graph; picture: Picture } {
  const graph = new Graph(answer);
  return {
    graph,
    picture: buildPicture(new NestedLayout(graph).layout(open ? open(graph) : allOpen(graph), direction), direction),
  };
}

function overlaps(picture: Picture): string[] {
  const overlaps: string[] = [];
  const siblings = new Map<number, number[]>();
  picture.around.forEach((around, i) => siblings.set(around, [...(siblings.get(around) ?? []), i]));
  const { x, y, w, h } = picture;
  for (const boxes of siblings.values()) {
    boxes.sort((a, b) => (x[a] ?? 0) - (x[b] ?? 0));
    boxes.forEach((a, i) => {
      for (const b of boxes.slice(i + 1)) {
        if ((x[b] ?? 0) >= (x[a] ?? 0) + (w[a] ?? 0) - 0.01) break;
        if ((y[b] ?? 0) < (y[a] ?? 0) + (h[a] ?? 0) - 0.01 && (y[a] ?? 0) < (y[b] ?? 0) + (h[b] ?? 0) - 0.01)
          overlaps.push(`${picture.item[a]} ${picture.item[b]}`);
      }
    });
  }
  return overlaps;
}

function outside(picture: Picture): number[] {
  const { x, y, w, h, around } = picture;
  return [...around.keys()].filter((i) => {
    const box = around[i] ?? -1;
    if (box < 0) return false;
    const [left, top] = [(x[i] ?? 0) - (x[box] ?? 0), (y[i] ?? 0) - (y[box] ?? 0)];
    return (
      left < -0.01 ||
      top < -0.01 ||
      left + (w[i] ?? 0) > (w[box] ?? 0) + 0.01 ||
      top + (h[i] ?? 0) > (h[box] ?? 0) + 0.01
    );
  });
}

function backwards(picture: Picture): number[] {
  const along = picture.direction === TOP_DOWN ? 1 : 0;
  return [...picture.kind.keys()].filter((e) => {
    if (picture.kind[e] === BACK || picture.kind[e] === STUB) return false;
    for (let p = (picture.start[e] ?? 0) + along; p + 2 < (picture.start[e + 1] ?? 0); p += 2)
      if ((picture.points[p] ?? 0) > (picture.points[p + 2] ?? 0) + 0.01) return true;
    return false;
  });
}

const SAMPLES: Record<string, () => GraphAnswer> = {
  residual,
  transformer: () => transformer(12),
  unusual,
  flat: () => flat(20),
};

describe.each(Object.entries(SAMPLES))("%s", (_, sample) => {
  describe.each([TOP_DOWN, LEFT_RIGHT] as const)("%s", (direction) => {
    const { graph, picture } = layOut(sample(), direction);

    it("has no overlaps", () => expect(overlaps(picture)).toEqual([]));
    it("keeps members inside their group", () => expect(outside(picture)).toEqual([]));
    it("follows the flow except in loops", () => expect(backwards(picture)).toEqual([]));
    it("shows every node and group once", () =>
      expect([...picture.item].sort((a, b) => a - b)).toEqual(
        [...Array(graph.nodes + graph.groups).keys()].filter(
          (item) => item !== graph.root && (graph.item[item] ?? item) === item,
        ),
      ));
    it("is deterministic", () => expect(layOut(sample(), direction).picture).toEqual(picture));
    it("draws every edge", () =>
      expect(new Set(picture.behind).size).toBe(
        [...graph.src.keys()].filter((e) => graph.src[e] !== graph.dst[e]).length,
      ));
  });
});

describe("nested layout", () => {
  it("has no overlaps while groups open one by one, and only lays out changed groups", () => {
    const graph = new Graph(transformer(6));
    const nested = new NestedLayout(graph);
    const open = new Set([graph.root]);
    for (const group of allOpen(graph)) {
      open.add(group);
      const picture = buildPicture(nested.layout(open, TOP_DOWN), TOP_DOWN);
      expect(nested.touched).toBeLessThanOrEqual(graph.around(group).length + 1);
      expect(overlaps(picture)).toEqual([]);
      expect(outside(picture)).toEqual([]);
    }
  });

  it("returns to the same picture after opening and closing", () => {
    const graph = new Graph(residual());
    const nested = new NestedLayout(graph);
    const before = buildPicture(nested.layout(new Set([graph.root]), TOP_DOWN), TOP_DOWN);
    nested.layout(allOpen(graph), TOP_DOWN);
    expect(buildPicture(nested.layout(new Set([graph.root]), TOP_DOWN), TOP_DOWN)).toEqual(before);
  });

  it("replaces the edges of a node that feeds every layer by labels", () => {
    const { picture } = layOut(flat(30), TOP_DOWN);
    expect(picture.kind.filter((kind) => kind === STUB).length).toBeGreaterThan(20);
  });

  it("does not drift sideways over many layers", () => {
    const narrow = layOut(flat(4), TOP_DOWN).picture.width;
    expect(layOut(flat(60), TOP_DOWN).picture.width).toBeLessThan(1.5 * narrow);
    expect(layOut(transformer(60), TOP_DOWN).picture.width).toBeLessThan(
      1.5 * layOut(transformer(4), TOP_DOWN).picture.width,
    );
  });

  it("draws a loop against the flow", () => {
    const { picture } = layOut(unusual(), TOP_DOWN);
    expect(picture.kind.filter((kind) => kind === BACK).length).toBe(1);
  });

  it("keeps a chain straight", () => {
    const { graph, picture } = layOut(residual([2]), TOP_DOWN, (graph) => new Set([graph.root]));
    const middles = [...picture.item.keys()].map((i) => (picture.x[i] ?? 0) + (picture.w[i] ?? 0) / 2);
    expect(graph.nodes).toBeGreaterThan(0);
    expect(new Set(middles.map((middle) => Math.round(middle))).size).toBe(1);
  });
});
