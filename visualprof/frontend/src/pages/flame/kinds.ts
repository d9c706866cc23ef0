// The kind of a frame, by its name, with one color each.
import type { FlameAnswer } from "../../api";

export type FrameKind = "own" | "library" | "builtin" | "module" | "operator" | "backward" | "others";

/** With the category of the palette that has the same color. */
export const FRAME_KINDS: Record<FrameKind, string> = {
  own: "cpu",
  library: "python",
  builtin: "other",
  module: "module",
  operator: "op",
  backward: "backward",
  others: "reserved",
};
const LIBRARY = /(^|\/)(torch|paddle|megengine|site-packages|dist-packages|lib\/python[\d.]+|threading\.py)(\/|\()/;

export function frameKind(name: string, tree: FlameAnswer["tree"]): FrameKind {
  if (name === "(others)") return "others";
  if (name === "(backward)" || (tree === "operator" && /Backward|_grad\b|^autograd::/.test(name))) return "backward";
  if (tree !== "python") return tree;
  if (name.startsWith("<")) return "builtin";
  if (!/\(\d+\): /.test(name)) return "module";
  return LIBRARY.test(name) ? "library" : "own";
}
