// Generated models for tests and measurements.
import type { GraphAnswer } from "../src/api/graph";

export class Builder {
  readonly groups: GraphAnswer["groups"] = {
    name: [],
    parent: [],
    kind: [],
    twin: [],
    node: [],
    operators: [],
    parameters: [],
    parameter_bytes: [],
    unknown_constants: [],
  };
  readonly nodes: GraphAnswer["nodes"] = {
    name: [],
    type: [],
    group: [],
    constants: [],
    parameters: [],
    parameter_bytes: [],
    unknown_constants: [],
  };
  readonly edges: GraphAnswer["edges"] = { src: [], dst: [], value: [] };
  readonly values: GraphAnswer["values"] = { name: [], dtype: [], shape: [] };

  constructor(readonly name: string) {
    this.group(name, -1, "model");
  }

  group(name: string, parent = 0, kind = "scope", templateId = -1): number {
    const id = this.groups.name.push(name) - 1;
    this.groups.parent.push(parent);
    this.groups.kind.push(kind);
    this.groups.twin.push(templateId < 0 ? id : templateId);
    this.groups.node.push(null);
    this.groups.operators.push(0);
    this.groups.parameters.push(0);
    this.groups.parameter_bytes.push(0);
    this.groups.unknown_constants.push(0);
    return id;
  }

  node(type: string, group: number, inputs: number[] = [], name = "", parameters = 0, shape = "8x64x56x56"): number {
    const id = this.nodes.type.push(type) - 1;
    this.nodes.name.push(name || `${type}_${id}`);
    this.nodes.group.push(group);
    this.nodes.constants.push(parameters > 0 ? 1 : 0);
    this.nodes.parameters.push(parameters);
    this.nodes.parameter_bytes.push(parameters * 4);
    this.nodes.unknown_constants.push(0);
    this.values.name.push(`${this.nodes.name[id]}_out`);
    this.values.dtype.push("float32");
    this.values.shape.push(shape);
    for (const input of inputs) this.edge(input, id);
    for (let g = group; g >= 0; g = this.groups.parent[g] ?? -1) {
      this.groups.operators[g] = (this.groups.operators[g] ?? 0) + Number(!["Input", "Output"].includes(type));
      this.groups.parameters[g] = (this.groups.parameters[g] ?? 0) + parameters;
      this.groups.parameter_bytes[g] = (this.groups.parameter_bytes[g] ?? 0) + 4 * parameters;
    }
    return id;
  }

  /** Add a node that is the group of its bodies; return both. */
  whole(type: string, group: number, inputs: number[], name: string): [node: number, group: number] {
    const inside = this.group(name, group, "control");
    const node = this.node(type, inside, inputs, name);
    this.groups.node[inside] = node;
    return [node, inside];
  }

  edge(src: number, dst: number): void {
    this.edges.src.push(src);
    this.edges.dst.push(dst);
    this.edges.value.push(src);
  }

  answer(): GraphAnswer {
    const total = this.groups.parameters[0] ?? 0;
    return {
      model: {
        id: this.name,
        name: this.name,
        format: "onnx",
        producer: "visualprof samples",
        inputs: [],
        outputs: [],
        parameters: total,
        parameter_bytes: total * 4,
        unknown_constants: 0,
        properties: {},
        warnings: [],
      },
      groups: this.groups,
      nodes: this.nodes,
      edges: this.edges,
      values: this.values,
    };
  }
}

/** Stages of residual blocks; all blocks are equal. */
export function residual(blocks: readonly number[] = [3, 4, 6, 3]): GraphAnswer {
  const b = new Builder("resnet");
  let x = b.node("Input", 0, [], "image");
  const stem = b.group("stem");
  x = b.node("Conv", stem, [x], "stem/Conv", 9408);
  x = b.node("Relu", stem, [x], "stem/Relu");
  x = b.node("MaxPool", stem, [x], "stem/MaxPool");
  blocks.forEach((count, s) => {
    const stage = b.group(`layer${s + 1}`);
    let [first, plain] = [-1, -1];
    for (let k = 0; k < count; k += 1) {
      const templateId = k === 0 ? first : plain;
      const block = b.group(`layer${s + 1}/block${k}`, stage, "block", templateId);
      if (k === 0) first = block;
      else if (plain < 0) plain = block;
      const at = `layer${s + 1}/block${k}`;
      let y = x;
      for (let c = 1; c <= 3; c += 1) {
        y = b.node("Conv", block, [y], `${at}/conv${c}`, 64 * 64 * 9);
        y = b.node("BatchNormalization", block, [y], `${at}/bn${c}`, 256);
        if (c < 3) y = b.node("Relu", block, [y], `${at}/relu${c}`);
      }
      const short = k === 0 ? b.node("Conv", block, [x], `${at}/downsample`, 4096) : x;
      x = b.node("Add", block, [y, short], `${at}/Add`);
      x = b.node("Relu", block, [x], `${at}/Relu`);
    }
  });
  const head = b.group("head");
  x = b.node("GlobalAveragePool", head, [x], "head/pool");
  x = b.node("Flatten", head, [x], "head/Flatten");
  x = b.node("Gemm", head, [x], "head/fc", 2_049_000, "8x1000");
  b.node("Output", 0, [x], "logits", 0, "8x1000");
  return b.answer();
}

/** Layers of 57 operators in scopes; one mask node feeds every layer. */
export function transformer(layers: number, flat = false): GraphAnswer {
  const b = new Builder("transformer");
  const ids = b.node("Input", 0, [], "input_ids", 0, "8x128");
  const mask = b.node("Input", 0, [], "attention_mask", 0, "8x128");
  const bias = b.node("Mul", 0, [b.node("Cast", 0, [mask])], "mask_bias", 0, "8x1x1x128");
  let x = b.node("Gather", 0, [ids], "embeddings/word", 23_440_896, "8x128x768");
  const encoder = flat ? 0 : b.group("encoder");
  const firsts: number[] = [];
  const group = (k: number, part: number, name: string, parent: number) => {
    if (flat) return 0;
    const id = b.group(name, parent, "scope", firsts[part] ?? -1);
    if (k === 0) firsts[part] = id;
    return id;
  };
  const norm = (at: string, g: number, from: number) => {
    const mean = b.node("ReduceMean", g, [from], `${at}/mean`);
    const centred = b.node("Sub", g, [from, mean], `${at}/sub`);
    const spread = b.node(
      "Sqrt",
      g,
      [
        b.node(
          "Add",
          g,
          [b.node("ReduceMean", g, [b.node("Pow", g, [centred], `${at}/pow`)], `${at}/var`)],
          `${at}/eps`,
        ),
      ],
      `${at}/sqrt`,
    );
    return b.node(
      "Add",
      g,
      [b.node("Mul", g, [b.node("Div", g, [centred, spread], `${at}/div`)], `${at}/scale`, 768)],
      `${at}/shift`,
      768,
    );
  };
  for (let k = 0; k < layers; k += 1) {
    const at = `encoder/layer.${k}`;
    const layer = group(k, 0, at, encoder);
    const attention = group(k, 1, `${at}/attention`, layer);
    const heads = ["query", "key", "value"].map((name) => {
      const y = b.node(
        "Add",
        attention,
        [b.node("MatMul", attention, [x], `${at}/attention/${name}/MatMul`, 589_824, "8x128x768")],
        `${at}/attention/${name}/Add`,
        768,
      );
      const shape = b.node(
        "Concat",
        attention,
        [
          b.node(
            "Gather",
            attention,
            [b.node("Shape", attention, [y], `${at}/attention/${name}/Shape`, 0, "3")],
            "",
            0,
            "",
          ),
          b.node("Shape", attention, [y], "", 0, "3"),
        ],
        "",
        0,
        "4",
      );
      return b.node(
        "Transpose",
        attention,
        [b.node("Reshape", attention, [y, shape], `${at}/attention/${name}/Reshape`, 0, "8x128x12x64")],
        `${at}/attention/${name}/Transpose`,
        0,
        "8x12x128x64",
      );
    });
    const [q = 0, key = 0, v = 0] = heads;
    const scores = b.node(
      "Add",
      attention,
      [
        b.node(
          "Div",
          attention,
          [b.node("MatMul", attention, [q, key], `${at}/attention/scores`, 0, "8x12x128x128")],
          "",
        ),
        bias,
      ],
      `${at}/attention/mask`,
      0,
      "8x12x128x128",
    );
    const mixed = b.node(
      "Reshape",
      attention,
      [
        b.node(
          "Transpose",
          attention,
          [b.node("MatMul", attention, [b.node("Softmax", attention, [scores], `${at}/attention/Softmax`), v], "")],
          "",
        ),
      ],
      "",
      0,
      "8x128x768",
    );
    const dense = b.node(
      "Add",
      attention,
      [b.node("MatMul", attention, [mixed], `${at}/attention/output/MatMul`, 589_824, "8x128x768")],
      "",
      768,
    );
    const sum = b.node("Add", layer, [dense, x], `${at}/Add`, 0, "8x128x768");
    const normed = norm(`${at}/attention_norm`, group(k, 2, `${at}/attention_norm`, layer), sum);
    const feed = group(k, 3, `${at}/feed_forward`, layer);
    const up = b.node(
      "Add",
      feed,
      [b.node("MatMul", feed, [normed], `${at}/feed_forward/up/MatMul`, 2_359_296, "8x128x3072")],
      "",
      3072,
    );
    const gate = b.node("Add", feed, [b.node("Erf", feed, [b.node("Div", feed, [up], "")], "")], "");
    const gelu = b.node("Mul", feed, [b.node("Mul", feed, [up, gate], "")], "");
    const down = b.node(
      "Add",
      feed,
      [b.node("MatMul", feed, [gelu], `${at}/feed_forward/down/MatMul`, 2_359_296, "8x128x768")],
      "",
      768,
    );
    const out = b.node("Add", layer, [down, normed], "", 0, "8x128x768");
    x = norm(`${at}/output_norm`, group(k, 4, `${at}/output_norm`, layer), out);
  }
  b.node("Output", 0, [x], "last_hidden_state", 0, "8x128x768");
  return b.answer();
}

/** A cycle, a branch with bodies, and names that look like markup. */
export function unusual(): GraphAnswer {
  const b = new Builder("unusual");
  const x = b.node("Input", 0, [], "<img src=x onerror=alert(1)>");
  const condition = b.node("Greater", 0, [x], "a&b<c>");
  const [, inside] = b.whole("If", 0, [condition], "If_0");
  const branches = ["then_branch", "else_branch"].map((side) => {
    const body = b.group(side, inside, "subgraph");
    const y = b.node("Mul", body, [x], "");
    return b.node("Output", body, [b.node("Relu", body, [y], "")], `${side}_out`);
  });
  const merge = b.node("Merge", 0, branches, "loop/Merge");
  b.edges.value[b.edges.value.length - 1] = branches[0] ?? 0; // both branches produce the value that the If returns
  const step = b.node("Add", 0, [merge], "loop/Add");
  const next = b.node("NextIteration", 0, [step], "loop/Next");
  b.edge(next, merge);
  b.node("Loop", 0, [step], "");
  b.node("Constant", 0, [], "alone");
  b.node("Constant", 0, [], "alone");
  b.node("Output", 0, [step], "y");
  return b.answer();
}

/** Five thousand operators without any scope. */
export function flat(layers = 120): GraphAnswer {
  return transformer(layers, true);
}
