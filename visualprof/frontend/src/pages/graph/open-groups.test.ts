import { describe, expect, it } from "vitest";
import { Graph } from "./graph";
import { firstOpen, itemText, levelOf, levelOpen, openText, textItem, textOpen } from "./open-groups";
import { residual, transformer } from "../../../tests/samples";

describe("open groups in the address", () => {
  const graph = new Graph(transformer(12));

  it("come back as they were", () => {
    for (const chosen of [[], [1], [1, 2, 3, 4], [1, 7, 8, 9, 30], [40, 41]]) {
      const open = new Set([graph.root, ...chosen.map((g) => graph.nodes + g)]);
      expect([...textOpen(graph, openText(graph, open))].sort()).toEqual([...open].sort());
    }
  });

  it("are short", () => {
    expect(openText(graph, firstOpen(graph))).toBe("");
    expect(openText(graph, levelOpen(graph, 99))).toBe("all");
    expect(openText(graph, new Set([...levelOpen(graph, 2)])).length).toBeLessThan(80);
  });

  it("survive nonsense", () => {
    expect(
      [...textOpen(graph, "zzzz~-~!~1-zz")].every((item) => item >= graph.nodes && item < graph.nodes + graph.groups),
    ).toBe(true);
    expect(textItem(graph, "n999999")).toBe(-1);
    expect(textItem(graph, itemText(graph, graph.nodes + 3))).toBe(graph.nodes + 3);
  });

  it("open a lone scope at once and small models whole", () => {
    expect(firstOpen(graph).size).toBe(2);
    expect(levelOf(new Graph(residual()), levelOpen(new Graph(residual()), 1))).toBe(1);
  });
});
