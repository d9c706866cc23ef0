// The inputs of a draft, from what the model's file says and which arrays were dropped beside it.
import type { TensorEntry, UploadAnswer, UploadedModel } from "../../api/model";
import type { Draft, DraftInput } from "./draft";

export const DTYPES = ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"] as const;

// These formats declare their inputs for good; of the others the file is a hint at most.
const DECLARED = new Set(["onnx", "openvino"]);

/** Whether name, type and every dimension of the inputs may be typed. */
export function free_inputs(model: UploadedModel | null | undefined): boolean {
  return !model || !DECLARED.has(model.format) || model.inputs.length === 0;
}

export function input_of(entry: TensorEntry): DraftInput {
  return { name: entry.name, dtype: entry.dtype || "float32", dims: (entry.dims ?? []).map((dim) => (dim === null ? "" : String(dim))), fill: "random", blob: "" };
}

export function is_name(dim: string): boolean {
  return dim !== "" && !/^-?\d/.test(dim);
}

/** "()", as Python writes the shape of a single number. */
export function is_scalar(text: string): boolean {
  return /^\s*(\(\s*\)|\[\s*\]|（\s*）)\s*$/.test(text);
}

/** "batch, 3, 224" or "batch×3×224" as dimensions. */
export function parse_dims(text: string): string[] {
  return is_scalar(text) ? [] : text.split(/[\s,，×]+|(?<=\d)x(?=\d)/).filter(Boolean);
}

export function dim_names(inputs: readonly DraftInput[]): string[] {
  return [...new Set(inputs.flatMap((input) => input.dims.filter(is_name)))];
}

function stem(name: string): string {
  return name.replace(/^.*[\\/]/, "").replace(/\.[^.]*$/, "");
}

/** The dropped array of an input: `input.npy`, `model.input.npy`, or the only array for the only input. */
export function array_of(input: string, model: string, arrays: readonly UploadAnswer[], only: boolean): UploadAnswer | null {
  const names = [input, `${stem(model)}.${input}`, `${model}.${input}`];
  const found = arrays.find((array) => names.includes(stem(array.name)));
  return found ?? (only && arrays.length === 1 ? (arrays[0] ?? null) : null);
}

/** Gives each input without values of its own the array that bears its name. */
export function match_arrays(draft: Draft): void {
  const only = draft.inputs.length === 1;
  for (const input of draft.inputs) {
    if (input.blob !== "" && draft.arrays.some((array) => array.blob === input.blob)) continue;
    const array = array_of(input.name, draft.model?.name ?? "", draft.arrays, only);
    if (array) Object.assign(input, { fill: "file", blob: array.blob });
    else if (input.fill === "file") Object.assign(input, { fill: "random", blob: "" });
  }
}

/** The dimension that is worth a sweep: the batch, by its name or by standing first everywhere. */
export function swept_dim(inputs: readonly DraftInput[]): string {
  const names = dim_names(inputs);
  const named = names.find((name) => /^(batch|batch_?size|n|b)$/i.test(name)) ?? names.find((name) => /batch/i.test(name));
  if (named !== undefined) return named;
  const first = inputs[0]?.dims[0] ?? "";
  return is_name(first) ? first : "";
}
