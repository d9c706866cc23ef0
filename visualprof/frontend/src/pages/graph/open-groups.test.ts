import { describe, expect, it } from "vitest";
import { Graph } from "./graph";
import { initialOpen, formatItem, openLevel, openToLevel, formatOpen, parseItem, parseOpen } from "./open-groups";
import { residual, transformer } from "../../../tests/samples";

describe("open groups in the address", () => {
  const graph = new Graph(transformer(12));

  it("are restored unchanged", () => {
    for (const chosen of [[], [1], [1, 2, 3, 4], [1, 7, 8, 9, 30], [40, 41]]) {
      const open = new Set([graph.root, ...chosen.map((g) => graph.nodes + g)]);
      expect([...parseOpen(graph, formatOpen(graph, open))].sort()).toEqual([...open].sort());
    }
  });

  it("are short", () => {
    expect(formatOpen(graph, initialOpen(graph))).toBe("");
    expect(formatOpen(graph, openToLevel(graph, 99))).toBe("all");
    expect(formatOpen(graph, new Set([...openToLevel(graph, 2)])).length).toBeLessThan(80);
  });

  it("ignore invalid text", () => {
    expect(
      [...parseOpen(graph, "zzzz~-~!~1-zz")].every((item) => item >= graph.nodes && item < graph.nodes + graph.groups),
    ).toBe(true);
    expect(parseItem(graph, "n999999")).toBe(-1);
    expect(parseItem(graph, formatItem(graph, graph.nodes + 3))).toBe(graph.nodes + 3);
  });

  it("open a single scope and small models fully", () => {
    expect(initialOpen(graph).size).toBe(2);
    expect(openLevel(new Graph(residual()), openToLevel(new Graph(residual()), 1))).toBe(1);
  });
});
