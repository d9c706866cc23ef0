import type { Cell } from "../../api";

/** Return the frames of a call stack of a snapshot, the innermost first. */
export function splitStack(stack: Cell | undefined): string[] {
  return typeof stack === "string" && stack !== "" ? stack.split(" < ") : [];
}
