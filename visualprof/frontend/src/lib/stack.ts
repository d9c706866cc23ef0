import type { Cell } from "../api/model";

/** The frames of a call stack, however the profiler joined them: a list, lines, or PyTorch's semicolons. */
export function frames_of(stack: Cell | undefined): string[] {
  if (Array.isArray(stack)) return stack.map(String);
  if (typeof stack !== "string") return [];
  return stack
    .split(/\r?\n|;/)
    .map((frame) => frame.trim())
    .filter(Boolean);
}
