import type { Cell } from "../api/model";
import { visible } from "./text";

/** The frames of a call stack, however the profiler joined them: a list, lines, or PyTorch's semicolons. */
export function framesOf(stack: Cell | undefined): string[] {
  if (Array.isArray(stack)) return stack.map((frame) => visible(String(frame)));
  if (typeof stack !== "string") return [];
  return stack
    .split(/\r?\n|;/)
    .map((frame) => visible(frame.trim()))
    .filter(Boolean);
}
