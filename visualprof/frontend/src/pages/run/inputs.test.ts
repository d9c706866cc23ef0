import { describe, expect, it } from "vitest";
import type { UploadAnswer } from "../../api/model";
import { array_of, dim_names, input_of, is_scalar, parse_dims, swept_dim } from "./inputs";

const array = (name: string): UploadAnswer => ({ blob: name, name, size_bytes: 1, kind: "array", model: null, graph: null, array: { dtype: "float32", shape: [1] } });

describe("inputs", () => {
  it("leave open what the file leaves open", () => expect(input_of({ name: "x", dtype: "", dims: [1, "n", null] })).toMatchObject({ dtype: "float32", dims: ["1", "n", ""] }));
  it("read dimensions with commas, crosses and spaces", () => expect(parse_dims("batch, 3×224 224x7")).toEqual(["batch", "3", "224", "224", "7"]));
  it("read () as the shape of a single number", () => expect(["()", " [ ] ", "（）", "", "1"].map((text) => [parse_dims(text).length, is_scalar(text)])).toEqual([[0, true], [0, true], [0, true], [0, false], [1, false]]));
  it("name each dimension once", () => expect(dim_names([input_of({ name: "a", dtype: "", dims: ["n", 3] }), input_of({ name: "b", dtype: "", dims: ["n", "m"] })])).toEqual(["n", "m"]));
  it("sweep the batch", () => expect(swept_dim([input_of({ name: "a", dtype: "", dims: ["seq", "batch_size"] })])).toBe("batch_size"));
  it("sweep the first dimension when none is called so", () => expect(swept_dim([input_of({ name: "a", dtype: "", dims: ["d0", 3] })])).toBe("d0"));
  it("sweep nothing when all are fixed", () => expect(swept_dim([input_of({ name: "a", dtype: "", dims: [1, 3] })])).toBe(""));
});

describe("array_of", () => {
  it("goes by the input's name", () => expect(array_of("mask", "bert.onnx", [array("ids.npy"), array("mask.npy")], false)?.name).toBe("mask.npy"));
  it("or by the model's and the input's", () => expect(array_of("mask", "bert.onnx", [array("bert.mask.npy")], false)?.name).toBe("bert.mask.npy"));
  it("gives the only array to the only input", () => expect(array_of("x", "m.pt", [array("anything.npy")], true)?.name).toBe("anything.npy"));
  it("guesses nothing else", () => expect(array_of("x", "m.pt", [array("a.npy"), array("b.npy")], true)).toBeNull());
});
