import { describe, expect, it } from "vitest";
import type { ProfileAnswer } from "../../api/graph";
import { readColors } from "./canvas/colors";
import { svgText } from "./canvas/export";
import { operatorFamily } from "./canvas/operator-family";
import { hitAt } from "./canvas/hit";
import { DOWNSTREAM, NO_HIGHLIGHTS, UPSTREAM } from "./canvas/highlights";
import { buildScene, visibleBox } from "./canvas/scene";
import { boxStatus } from "./comparison";
import { searchItems, findByName } from "./search";
import { flowHighlights, traceFlow, neighborItems } from "./flow";
import { Graph } from "./graph";
import { compareProfiles, changeText, heatOverlay, changeOverlay, groupSums } from "./heat";
import { lastPart } from "./labels";
import { NestedLayout } from "./layout/nested";
import { buildPicture } from "./layout/picture";
import { initialOpen, openToLevel } from "./open-groups";
import { residual, transformer, unusual } from "../../../tests/samples";

function layOut(answer = residual(), open?: (graph: Graph) => Set<number>) {
  const graph = new Graph(answer);
  return {
    graph,
    scene: buildScene(
      graph,
      buildPicture(new NestedLayout(graph).layout(open?.(graph) ?? initialOpen(graph), "td"), "td"),
    ),
  };
}

describe("search", () => {
  const graph = new Graph(residual());

  it("requires every word, in names, types and shapes", () => {
    expect(searchItems(graph, "CONV layer2/block0").length).toBe(4);
    expect(searchItems(graph, "8x1000").length).toBe(1);
    expect(searchItems(graph, "   ")).toEqual([]);
    expect(searchItems(graph, "layer3/block5").some((item) => graph.isGroup(item))).toBe(true);
  });

  it("finds the node that a profile names, or nodes of its type", () => {
    expect(findByName(graph, "head/fc").length).toBe(1);
    expect(findByName(graph, "downsample").length).toBe(4);
    expect(findByName(graph, "aten::MaxPool").length).toBe(1);
    expect(findByName(graph, "nothing")).toEqual([]);
    const merged = Array.from({ length: graph.nodes }, (_, n) => (n === 7 ? "relued_nchwc" : null));
    expect(findByName(graph, "relued_nchwc", merged)).toEqual([7]);
  });
});

describe("flow", () => {
  const { graph, scene } = layOut();
  const add = findByName(graph, "layer1/block0/Add")[0] ?? -1;

  it("marks neighbors, or everything upstream and downstream", () => {
    const direct = traceFlow(graph, add, false);
    expect([
      direct.nodes.filter((mark) => mark === UPSTREAM).length,
      direct.nodes.filter((mark) => mark === DOWNSTREAM).length,
    ]).toEqual([2, 1]);
    const transitive = traceFlow(graph, add, true);
    expect(transitive.nodes.filter(Boolean).length).toBe(graph.nodes - 1);
  });

  it("shows on folded groups what happens inside", () => {
    const marks = flowHighlights(scene, traceFlow(graph, add, true));
    expect(marks.boxes[visibleBox(scene, findByName(graph, "head/fc")[0] ?? -1)]).toBe(DOWNSTREAM);
    expect(marks.edges.includes(UPSTREAM)).toBe(true);
  });
});

describe("a node with bodies", () => {
  const { graph, scene } = layOut(unusual(), (graph) => openToLevel(graph, 9));
  const [ifNode = -1] = findByName(graph, "If_0");
  const condition = findByName(graph, "a&b<c>")[0] ?? -1;

  it("is drawn, found and named as the group of its bodies", () => {
    expect(graph.isGroup(ifNode)).toBe(true);
    const node = graph.nodeOf(ifNode);
    expect([scene.boxIndex[node], graph.item[node], searchItems(graph, "If_0")]).toEqual([-1, ifNode, [ifNode]]);
    expect(scene.labels[visibleBox(scene, node)]?.title).toBe("If · If_0");
    expect(graph.shown(node, openToLevel(graph, 9))).toBe(ifNode);
  });

  it("passes data on: nodes that it controls lead to consumers of its outputs", () => {
    const after = traceFlow(graph, condition, true).nodes;
    for (const name of ["then_branch_out", "else_branch_out", "loop/Merge", "y"])
      expect(after[findByName(graph, name)[0] ?? -1]).toBe(DOWNSTREAM);
    expect(traceFlow(graph, findByName(graph, "y")[0] ?? -1, true).nodes[condition]).toBe(UPSTREAM);
    expect(neighborItems(graph, ifNode, "in")).toContain(condition);
    expect(neighborItems(graph, ifNode, "out")).toEqual(findByName(graph, "loop/Merge"));
  });

  it("has one output for the results of its branches, open and folded", () => {
    const merge = findByName(graph, "loop/Merge")[0] ?? -1;
    for (const level of [0, 9]) {
      const { picture } = layOut(unusual(), (graph) => openToLevel(graph, level)).scene;
      const edges = [...picture.kind.keys()].filter(
        (e) => picture.item[picture.from[e] ?? -1] === ifNode && picture.item[picture.to[e] ?? -1] === merge,
      );
      expect(edges.length).toBe(1);
    }
  });

  it("receives its condition at its border, open and folded", () => {
    for (const level of [0, 9]) {
      const { picture } = layOut(unusual(), (graph) => openToLevel(graph, level)).scene;
      const ends = [...picture.kind.keys()]
        .filter((e) => picture.item[picture.from[e] ?? -1] === condition)
        .map((e) => picture.item[picture.to[e] ?? -1]);
      expect(ends).toEqual([ifNode]);
    }
  });
});

describe("measurements", () => {
  const { graph, scene } = layOut();
  const none = new Array<number | null>(graph.nodes).fill(null);
  const time = none.map((_, node) => (node % 2 === 0 ? 1000 : null));
  const profile: ProfileAnswer = {
    total_ns: 1e6,
    matched_ns: 1,
    matched_ratio: 1,
    matched_nodes: 1,
    calls_total: 1,
    rule: "name",
    reason: "",
    columns: {
      time_ns: time,
      calls: none,
      flops: none,
      memory_bytes: none,
      event: none,
      operator: none.map(() => null),
    },
    unmatched: { name: [], reason: [], time_ns: [], calls: [], event: [] },
  };
  const sums = groupSums(graph, profile);

  it("add up over groups and stay unknown where nothing was measured", () => {
    expect(sums.time_ns[graph.root]).toBe(time.reduce<number>((sum, value) => sum + (value ?? 0), 0));
    expect(sums.time_ns[1]).toBeNaN();
    expect(sums.calls[graph.root]).toBeNaN();
  });

  it("give the most expensive box the hottest color", () => {
    const heat = heatOverlay(scene, sums, "time_ns", 1e6);
    expect(Math.max(...[...heat.share].filter((share) => !Number.isNaN(share)))).toBe(1);
    expect(heat.text.every((text) => text === "" || text.includes("%"))).toBe(true);
  });

  it("compare with a base for the same number of calls", () => {
    // Node 0: 100 ns in 2 calls; the base has 600 in 4, so 300 for 2. Node 1: 50 in 1, the base 25. Node 2 is not in
    // the base.
    const profileOf = (times: (number | null)[], calls: (number | null)[]): ProfileAnswer => ({
      ...profile,
      columns: {
        ...profile.columns,
        time_ns: none.map((_, node) => times[node] ?? null),
        calls: none.map((_, node) => calls[node] ?? null),
      },
    });
    const both = compareProfiles(graph, profileOf([100, 50, 70], [2, 1, 1]), profileOf([600, 25], [4, 1]));
    expect([both.now[0], both.before[0], both.now[1], both.before[1]]).toEqual([100, 300, 50, 25]);
    expect([both.now[2], both.now[graph.root], both.before[graph.root]]).toEqual([NaN, 150, 325]);
    const text = (item: number) => changeText(both, item).replaceAll("\u00a0", " ");
    expect([text(0), text(1), text(2)]).toEqual(["▼ −200 ns · −66.7 %", "▲ +25 ns · +100 %", ""]);
    const { scene: open } = layOut(residual(), (graph) => openToLevel(graph, 9));
    const heat = changeOverlay(open, both);
    const share = (node: number) => heat.share[open.boxIndex[node] ?? -1];
    expect([share(0), share(2)]).toEqual([-1, NaN]);
    expect(share(1) ?? 0).toBeCloseTo(Math.sqrt(25 / 200));
  });
});

describe("the picture", () => {
  it("is escaped in SVG and contains every box", () => {
    const { graph, scene } = layOut(unusual(), (graph) => openToLevel(graph, 9));
    const svg = svgText(scene, NO_HIGHLIGHTS, readColors("light"), { operators: String }, "a<b>");
    expect(svg).not.toContain("<img");
    expect(svg).toContain("&lt;img");
    expect(new DOMParser().parseFromString(svg, "image/svg+xml").querySelectorAll("path").length).toBeGreaterThan(
      graph.nodes,
    );
    expect(svg).not.toContain("NaN");
  });

  it("is hit where it is drawn, the innermost box first", () => {
    const { graph, scene } = layOut(transformer(2), (graph) => openToLevel(graph, 9));
    const { x, y, w, h, item } = scene.picture;
    item.forEach((graphItem, i) => {
      if (graph.isGroup(graphItem)) return;
      expect(hitAt(scene, (x[i] ?? 0) + (w[i] ?? 0) / 2, (y[i] ?? 0) + (h[i] ?? 0) / 2, 0)?.box).toBe(i);
    });
  });

  it("labels the shape of each slot once", () => {
    const { scene } = layOut(residual(), (graph) => openToLevel(graph, 9));
    expect(scene.shapes.some((shape) => shape === "8×64×56×56")).toBe(true);
  });

  it("shows a folded group as changed if a part of it is", () => {
    const { graph, scene } = layOut();
    const status = new Array<"same" | "removed">(graph.nodes).fill("same");
    const node = findByName(graph, "layer2/block0/Add")[0] ?? 0;
    status[node] = "removed";
    expect(boxStatus(scene, status)[visibleBox(scene, node)]).toBe("changed");
  });
});

describe("names", () => {
  it("sort operators of all frameworks into families", () => {
    const types = [
      "Conv",
      "aten::convolution",
      "ConvolutionForward",
      "MatMul",
      "aten::addmm",
      "FullyConnected",
      "BatchNormalization",
      "Elemwise",
      "Relu",
      "Reshape",
      "LSTM",
      "If",
      "Input",
      "Mystery",
    ];
    expect(types.map(operatorFamily)).toEqual([
      "conv",
      "conv",
      "conv",
      "matmul",
      "matmul",
      "matmul",
      "norm",
      "elementwise",
      "activation",
      "reshape",
      "sequence",
      "control",
      "io",
      "other",
    ]);
  });

  it("are shortened to the last part of a path", () =>
    expect(["/encoder/layer.0/MatMul_1", "conv1", "a//", ""].map(lastPart)).toEqual(["MatMul_1", "conv1", "a", ""]));
});
