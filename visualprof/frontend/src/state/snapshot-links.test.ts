import { describe, expect, it } from "vitest";
import { snapshotLocation } from "./snapshot-links";

const snapshot = {
  file: "a.pickle",
  run: "r",
  worker: "w",
  span: "1",
  device: 0,
  recording: "a.json",
  start_ns: 100,
  end_ns: 200,
};
const query = { run: "r", worker: "w", span: "1" };

describe("the link from a recording to its snapshot", () => {
  it("names a time of the recording", () => {
    expect(snapshotLocation([snapshot], 150)).toEqual({ path: "/snapshot", query: { ...query, at: "150@a.json" } });
    expect(snapshotLocation([snapshot])).toEqual({ path: "/snapshot", query: { ...query, at: undefined } });
  });
  it("starts with the history for an event that was running then", () => {
    expect(snapshotLocation([snapshot], 50, 120)).toMatchObject({ query: { at: "100@a.json" } });
  });
  it("does not exist outside of the history", () => {
    expect(snapshotLocation([snapshot], 50, 99)).toBeNull();
    expect(snapshotLocation([snapshot], 201)).toBeNull();
    expect(snapshotLocation([])).toBeNull();
  });
  it("leads to the snapshot whose history contains the time", () => {
    const later = { ...snapshot, span: "2", start_ns: 300, end_ns: 400 };
    expect(snapshotLocation([snapshot, later], 350)).toMatchObject({ query: { span: "2" } });
  });
});
