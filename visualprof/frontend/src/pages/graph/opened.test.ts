import { describe, expect, it } from "vitest";
import { Graph } from "./graph";
import { first_open, item_text, level_of, level_open, open_text, text_item, text_open } from "./opened";
import { residual, transformer } from "../../../tests/samples";

describe("open groups in the address", () => {
  const graph = new Graph(transformer(12));

  it("come back as they were", () => {
    for (const chosen of [[], [1], [1, 2, 3, 4], [1, 7, 8, 9, 30], [40, 41]]) {
      const open = new Set([graph.root, ...chosen.map((g) => graph.nodes + g)]);
      expect([...text_open(graph, open_text(graph, open))].sort()).toEqual([...open].sort());
    }
  });

  it("are short", () => {
    expect(open_text(graph, first_open(graph))).toBe("");
    expect(open_text(graph, level_open(graph, 99))).toBe("all");
    expect(open_text(graph, new Set([...level_open(graph, 2)])).length).toBeLessThan(80);
  });

  it("survive nonsense", () => {
    expect(
      [...text_open(graph, "zzzz~-~!~1-zz")].every((item) => item >= graph.nodes && item < graph.nodes + graph.groups),
    ).toBe(true);
    expect(text_item(graph, "n999999")).toBe(-1);
    expect(text_item(graph, item_text(graph, graph.nodes + 3))).toBe(graph.nodes + 3);
  });

  it("open a lone scope at once and small models whole", () => {
    expect(first_open(graph).size).toBe(2);
    expect(level_of(new Graph(residual()), level_open(new Graph(residual()), 1))).toBe(1);
  });
});
