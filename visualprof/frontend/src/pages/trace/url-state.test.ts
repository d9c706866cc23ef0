import { describe, expect, it } from "vitest";
import {
  formatArea,
  formatEvent,
  formatOffsets,
  formatRange,
  parseArea,
  parseEvent,
  parseList,
  parseNumbers,
  parseOffsets,
  parseRange,
} from "./url-state";

describe("address", () => {
  it("restores every value", () => {
    for (const range of [
      { start: -12, end: 5 },
      { start: 0, end: 2 ** 53 - 1 },
    ])
      expect(parseRange(formatRange(range))).toEqual(range);
    for (const worker of [3, -1])
      expect(parseEvent(formatEvent({ worker, event: 9_999_999 }))).toEqual({ worker, event: 9_999_999 });
    const area = { start: 1, end: 9, tracks: ["0.1", "2.33"] };
    expect(parseArea(formatArea(area))).toEqual(area);
    expect(parseArea(formatArea({ ...area, tracks: [] }))).toEqual({ ...area, tracks: [] });
    const offsets = new Map([
      [-1, 40],
      [1, -250],
      [3, 1_000_000],
    ]);
    expect(parseOffsets(formatOffsets(offsets))).toEqual(offsets);
    expect(parseNumbers("5~-7")).toEqual([5, -7]);
  });

  it("is written in full ns, so that writing it again gives the same text", () => {
    const text = formatRange({ start: 1.4, end: 99.6 });
    expect(formatRange(parseRange(text) ?? { start: 0, end: 1 })).toBe(text);
  });

  it("ignores invalid text", () => {
    for (const text of ["", "5", "5~", "9~3", "a~b", "1e9~2e9"]) expect(parseRange(text)).toBeNull();
    for (const text of ["", "1", "x.y", "-2.3", "1.-2"]) expect(parseEvent(text)).toBeNull();
    expect(parseOffsets("1~x.3~2.5")).toEqual(new Map([[2, 5]]));
    expect(parseList("a~~b")).toEqual(["a", "b"]);
  });
});
