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
