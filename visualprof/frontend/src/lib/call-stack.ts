import type { Cell } from "../api/model";
import { displayText } from "./text";

/** Return the frames of a call stack in any format: a list, lines, or PyTorch's semicolons. */
export function stackFrames(stack: Cell | undefined): string[] {
  if (Array.isArray(stack)) return stack.map((frame) => displayText(String(frame)));
  if (typeof stack !== "string") return [];
  return stack
    .split(/\r?\n|;/)
    .map((frame) => displayText(frame.trim()))
    .filter(Boolean);
}

export interface Frame {
  text: string;
  /** "" for a frame without a file. */
  file: string;
  line: number;
  name: string;
  /** Frames of libraries are the others with a file. */
  own: boolean;
}

// As LIBRARY_FRAME in visualprof/views/measure/launches/launch_origin.py.
const LIBRARY =
  /^<|(^|\/)(torch|paddle|megengine|site-packages|dist-packages|lib\/python[\d.]+|threading\.py)(\/|\(|$)/;
/** `train.py(12): step`, `File "train.py", line 12, in step` and `train.py:12 step`. */
const FORMS = [
  /^(?<file>[^()]+\.\w+)\((?<line>\d+)\)(?:: ?(?<name>.*))?$/,
  /^File "(?<file>[^"]+)", line (?<line>\d+)(?:, in (?<name>.*))?$/,
  /^(?<file>\S+\.\w+):(?<line>\d+)(?:[: ]+(?:in )?(?<name>.*))?$/,
];

export function parseFrame(text: string): Frame {
  const found = FORMS.map((form) => form.exec(text)?.groups).find(Boolean);
  const file = (found?.["file"] ?? "").replaceAll("\\", "/");
  const own = file !== "" && !LIBRARY.test(file) && !file.startsWith("<");
  return { text, file, line: Number(found?.["line"] ?? 0), name: found?.["name"] ?? "", own };
}

/** Group frames of libraries that follow each other, which are shown folded. */
export function foldFrames(frames: readonly Frame[]): Frame[][] {
  const parts: Frame[][] = [];
  for (const frame of frames) {
    const last = parts.at(-1);
    const isLibrary = frame.file !== "" && !frame.own;
    if (isLibrary && last?.[0] && last[0].file !== "" && !last[0].own) last.push(frame);
    else parts.push([frame]);
  }
  return parts;
}
