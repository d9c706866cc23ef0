// Convert terminal output to plain text as it would look in a terminal.
import { displayText } from "./text";

// CSI sequences, OSC strings (links, titles) and the short escapes.
// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_])/g;

/** A progress bar overwrites its line; the last text counts. */
function applyCarriageReturns(line: string): string {
  const visibleLine = line.endsWith("\r") ? line.slice(0, -1) : line;
  return visibleLine.slice(visibleLine.lastIndexOf("\r") + 1);
}

export function logLines(text: string): string[] {
  return text
    .replace(ESCAPES, "")
    .split("\n")
    .map((line) => displayText(applyCarriageReturns(line).replaceAll("\t", "    ")));
}
