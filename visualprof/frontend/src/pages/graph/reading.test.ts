import { describe, expect, it } from "vitest";
import type { ProfileAnswer } from "../../api/graph";
import { colors_of } from "./canvas/colors";
import { svg_text } from "./canvas/export";
import { family_of } from "./canvas/family";
import { hit_at } from "./canvas/hit";
import { DOWNSTREAM, NO_MARKS, UPSTREAM } from "./canvas/marks";
import { scene_of, shown_place } from "./canvas/scene";
import { box_status } from "./comparison";
import { found_items, named_items } from "./find";
import { flow_marks, flow_of, neighbours } from "./flow";
import { Graph } from "./graph";
import { change_of, change_text, heat_of, heat_of_change, sums_of } from "./heat";
import { last_part } from "./labels";
import { Nested } from "./layout/nested";
import { picture_of } from "./layout/picture";
import { first_open, level_open } from "./opened";
import { residual, transformer, unusual } from "../../../tests/samples";

function drawn(answer = residual(), open?: (graph: Graph) => Set<number>) {
  const graph = new Graph(answer);
  return {
    graph,
    scene: scene_of(graph, picture_of(new Nested(graph).layout(open?.(graph) ?? first_open(graph), "td"), "td")),
  };
}

describe("search", () => {
  const graph = new Graph(residual());

  it("wants every word, in names, types and shapes", () => {
    expect(found_items(graph, "CONV layer2/block0").length).toBe(4);
    expect(found_items(graph, "8x1000").length).toBe(1);
    expect(found_items(graph, "   ")).toEqual([]);
    expect(found_items(graph, "layer3/block5").some((item) => graph.is_group(item))).toBe(true);
  });

  it("finds the node that a profile names, else its type", () => {
    expect(named_items(graph, "head/fc").length).toBe(1);
    expect(named_items(graph, "downsample").length).toBe(4);
    expect(named_items(graph, "aten::MaxPool").length).toBe(1);
    expect(named_items(graph, "nothing")).toEqual([]);
    const merged = Array.from({ length: graph.nodes }, (_, n) => (n === 7 ? "relued_nchwc" : null));
    expect(named_items(graph, "relued_nchwc", merged)).toEqual([7]);
  });
});

describe("flow", () => {
  const { graph, scene } = drawn();
  const add = named_items(graph, "layer1/block0/Add")[0] ?? -1;

  it("marks neighbours, or everything before and after", () => {
    const near = flow_of(graph, add, false);
    expect([
      near.nodes.filter((mark) => mark === UPSTREAM).length,
      near.nodes.filter((mark) => mark === DOWNSTREAM).length,
    ]).toEqual([2, 1]);
    const whole = flow_of(graph, add, true);
    expect(whole.nodes.filter(Boolean).length).toBe(graph.nodes - 1);
  });

  it("shows on folded groups what happens inside", () => {
    const marks = flow_marks(scene, flow_of(graph, add, true));
    expect(marks.boxes[shown_place(scene, named_items(graph, "head/fc")[0] ?? -1)]).toBe(DOWNSTREAM);
    expect(marks.edges.includes(UPSTREAM)).toBe(true);
  });
});

describe("a node with bodies", () => {
  const { graph, scene } = drawn(unusual(), (one) => level_open(one, 9));
  const [whole = -1] = named_items(graph, "If_0");
  const condition = named_items(graph, "a&b<c>")[0] ?? -1;

  it("is the group of them: drawn, found and named as one", () => {
    expect(graph.is_group(whole)).toBe(true);
    const node = graph.node_of(whole);
    expect([scene.place[node], graph.item[node], found_items(graph, "If_0")]).toEqual([-1, whole, [whole]]);
    expect(scene.labels[shown_place(scene, node)]?.title).toBe("If · If_0");
    expect(graph.shown(node, level_open(graph, 9))).toBe(whole);
  });

  it("passes the data on: what it decides over leads to what takes its outputs", () => {
    const after = flow_of(graph, condition, true).nodes;
    for (const name of ["then_branch_out", "else_branch_out", "loop/Merge", "y"])
      expect(after[named_items(graph, name)[0] ?? -1]).toBe(DOWNSTREAM);
    expect(flow_of(graph, named_items(graph, "y")[0] ?? -1, true).nodes[condition]).toBe(UPSTREAM);
    expect(neighbours(graph, whole, "in")).toContain(condition);
    expect(neighbours(graph, whole, "out")).toEqual(named_items(graph, "loop/Merge"));
  });

  it("gives what its branches make as one, open and folded", () => {
    const merge = named_items(graph, "loop/Merge")[0] ?? -1;
    for (const level of [0, 9]) {
      const { picture } = drawn(unusual(), (one) => level_open(one, level)).scene;
      const edges = [...picture.kind.keys()].filter(
        (e) => picture.item[picture.from[e] ?? -1] === whole && picture.item[picture.to[e] ?? -1] === merge,
      );
      expect(edges.length).toBe(1);
    }
  });

  it("takes its condition at its border, open and folded", () => {
    for (const level of [0, 9]) {
      const { picture } = drawn(unusual(), (one) => level_open(one, level)).scene;
      const ends = [...picture.kind.keys()]
        .filter((e) => picture.item[picture.from[e] ?? -1] === condition)
        .map((e) => picture.item[picture.to[e] ?? -1]);
      expect(ends).toEqual([whole]);
    }
  });
});

describe("measured figures", () => {
  const { graph, scene } = drawn();
  const none = new Array<number | null>(graph.nodes).fill(null);
  const time = none.map((_, node) => (node % 2 === 0 ? 1000 : null));
  const profile: ProfileAnswer = {
    total_ns: 1e6,
    matched_ns: 1,
    matched_ratio: 1,
    matched_nodes: 1,
    calls_total: 1,
    rule: "name",
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
  const sums = sums_of(graph, profile);

  it("add up over groups and stay unknown where nothing was measured", () => {
    expect(sums.time_ns[graph.root]).toBe(time.reduce<number>((all, one) => all + (one ?? 0), 0));
    expect(sums.time_ns[1]).toBeNaN();
    expect(sums.calls[graph.root]).toBeNaN();
  });

  it("colour the most expensive box hottest", () => {
    const heat = heat_of(scene, sums, "time_ns", 1e6);
    expect(Math.max(...[...heat.share].filter((share) => !Number.isNaN(share)))).toBe(1);
    expect(heat.text.every((text) => text === "" || text.includes("%"))).toBe(true);
  });

  it("compare a base by the call: as many calls as here", () => {
    // Node 0: 100 ns in 2 calls, the base 600 in 4, 300 for as many. Node 1: 50 in 1, the base 25. Node 2 is not in the base.
    const of = (times: (number | null)[], calls: (number | null)[]): ProfileAnswer => ({
      ...profile,
      columns: {
        ...profile.columns,
        time_ns: none.map((_, node) => times[node] ?? null),
        calls: none.map((_, node) => calls[node] ?? null),
      },
    });
    const both = change_of(graph, of([100, 50, 70], [2, 1, 1]), of([600, 25], [4, 1]));
    expect([both.now[0], both.before[0], both.now[1], both.before[1]]).toEqual([100, 300, 50, 25]);
    expect([both.now[2], both.now[graph.root], both.before[graph.root]]).toEqual([NaN, 150, 325]);
    const text = (item: number) => change_text(both, item).replaceAll("\u00a0", " ");
    expect([text(0), text(1), text(2)]).toEqual(["▼ −200 ns · −66.7 %", "▲ +25 ns · +100 %", ""]);
    const { scene: open } = drawn(residual(), (one) => level_open(one, 9));
    const heat = heat_of_change(open, both);
    const share = (node: number) => heat.share[open.place[node] ?? -1];
    expect([share(0), share(2)]).toEqual([-1, NaN]);
    expect(share(1) ?? 0).toBeCloseTo(Math.sqrt(25 / 200));
  });
});

describe("the picture", () => {
  it("is escaped in SVG and holds every box", () => {
    const { graph, scene } = drawn(unusual(), (one) => level_open(one, 9));
    const svg = svg_text(scene, NO_MARKS, colors_of("light"), { operators: String }, "a<b>");
    expect(svg).not.toContain("<img");
    expect(svg).toContain("&lt;img");
    expect(new DOMParser().parseFromString(svg, "image/svg+xml").querySelectorAll("path").length).toBeGreaterThan(
      graph.nodes,
    );
    expect(svg).not.toContain("NaN");
  });

  it("is hit where it is drawn, the innermost box first", () => {
    const { graph, scene } = drawn(transformer(2), (one) => level_open(one, 9));
    const { x, y, w, h, item } = scene.picture;
    item.forEach((one, i) => {
      if (graph.is_group(one)) return;
      expect(hit_at(scene, (x[i] ?? 0) + (w[i] ?? 0) / 2, (y[i] ?? 0) + (h[i] ?? 0) / 2, 0)?.box).toBe(i);
    });
  });

  it("labels each slot's shape once", () => {
    const { scene } = drawn(residual(), (one) => level_open(one, 9));
    expect(scene.shapes.some((shape) => shape === "8×64×56×56")).toBe(true);
  });

  it("shows a folded group as changed when part of it is", () => {
    const { graph, scene } = drawn();
    const status = new Array<"same" | "removed">(graph.nodes).fill("same");
    const node = named_items(graph, "layer2/block0/Add")[0] ?? 0;
    status[node] = "removed";
    expect(box_status(scene, status)[shown_place(scene, node)]).toBe("changed");
  });
});

describe("words", () => {
  it("sort operators of every framework into families", () => {
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
    expect(types.map(family_of)).toEqual([
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

  it("take the last part of a path", () =>
    expect(["/encoder/layer.0/MatMul_1", "conv1", "a//", ""].map(last_part)).toEqual(["MatMul_1", "conv1", "a", ""]));
});
