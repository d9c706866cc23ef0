import { beforeEach, describe, expect, it } from "vitest";
import type { UploadAnswer } from "../../api/model";
import { clearDraft, draft, newSpec, toRow, setArrays, setModel, toRequest } from "./draft";

const model = (name: string, dims: Record<string, number>): UploadAnswer => ({
  blob: name,
  name,
  size_bytes: 1,
  kind: "model",
  array: null,
  graph: null,
  model: {
    format: "onnx",
    inputs: [{ name: "x", dtype: "float32", dims: ["batch"] }],
    outputs: [],
    dims,
    backends: ["onnxruntime"],
    warnings: [],
    fixed_inputs: true,
    external: [],
  },
});
const array = (blob: string): UploadAnswer => ({
  blob,
  name: `${blob}.npy`,
  size_bytes: 1,
  kind: "array",
  model: null,
  graph: null,
  array: { dtype: "float32", shape: [1] },
});

describe("a draft", () => {
  beforeEach(clearDraft);

  it("leaves empty inputs to the server", () => {
    setModel(model("m.onnx", { batch: 1 }), "");
    expect(toRequest([])).toMatchObject({
      model: "m.onnx",
      inputs: [{ name: "x", dtype: "", dims: null, fill: "", blob: "" }],
      sweep: null,
      sizes: null,
      usual_sizes: "1:16",
      dims: {},
      specs: null,
      measure: {},
    });
  });
  it("describes a spec row as one choice of each kind", () => {
    draft.specs = [
      newSpec({ backend: "torch", where: "agent:a:b", threads: "4" }),
      newSpec({ backend: "torch", where: "platform:cuda" }),
    ];
    const specs = toRequest([]).specs ?? [];
    expect(specs).toMatchObject([
      { backends: ["torch"], agent: "a:b", platform: "", threads: ["4"] },
      { agent: "", platform: "cuda" },
    ]);
    expect(specs.map(toRow)).toMatchObject(
      draft.specs.map(({ backend, where, threads }) => ({ backend, where, threads })),
    );
  });
  it("keeps sizes and specs for another model that has them", () => {
    setModel(model("a.onnx", { batch: 1 }), "");
    Object.assign(draft, {
      sizes: "3, 5",
      specs: [newSpec({ backend: "onnxruntime" }), newSpec({ backend: "torch" })],
    });
    setModel(model("b.onnx", { batch: 1 }), "batch");
    expect([draft.sizes, draft.specs?.map((spec) => spec.backend)]).toEqual(["3, 5", ["onnxruntime"]]);
    setModel(model("c.onnx", {}), "batch");
    expect(draft.sizes).toBeNull();
  });
  it("sends sizes of the needed dimensions", () => {
    draft.dims = { seq: "64", gone: "2" };
    expect(toRequest(["batch", "seq"]).dims).toEqual({ seq: "64" });
  });
  it("takes an array of the same name if its array was removed", () => {
    setModel(model("a.onnx", {}), "");
    setArrays([array("one")]);
    Object.assign(draft.inputs[0] ?? {}, { fill: "file", blob: "one" });
    setArrays([array("two")]);
    expect(draft.inputs[0]).toMatchObject({ fill: "", blob: "" });
  });
});
