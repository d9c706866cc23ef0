import { describe, expect, it } from "vitest";
import type { LiveRecording, Run, Span } from "../api";
import { recordedSpan } from "./live";

const span = (file: string): Span => ({ file, id: file }) as Span;
const run = {
  workers: [
    { id: "rank0", spans: [span("old0"), span("new0")] },
    { id: "rank1", spans: [span("new1")] },
  ],
} as Run;
const recordingOf = (...files: (string | null)[]) => ({ workers: files.map((file) => ({ file })) }) as LiveRecording;

describe("recordedSpan", () => {
  it.each([
    [recordingOf("new0", "new1"), "rank1", "new1"],
    [recordingOf("new0", "new1"), null, "new0"],
    [recordingOf("new0", null), "rank1", "new0"],
    [recordingOf(null), "rank0", undefined],
    [recordingOf("later"), "rank0", undefined],
  ])("%#", (recording, preferred, file) => expect(recordedSpan(run, recording, preferred)?.span.file).toBe(file));
});
