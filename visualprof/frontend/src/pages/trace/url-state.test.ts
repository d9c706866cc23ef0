import { describe, expect, it } from "vitest";
import {
  areaText,
  eventText,
  offsetsText,
  rangeText,
  textArea,
  textEvent,
  textList,
  textNumbers,
  textOffsets,
  textRange,
} from "./url-state";

describe("address", () => {
  it("gives back what it was given", () => {
    for (const range of [
      { start: -12, end: 5 },
      { start: 0, end: 2 ** 53 - 1 },
    ])
      expect(textRange(rangeText(range))).toEqual(range);
    for (const worker of [3, -1])
      expect(textEvent(eventText({ worker, event: 9_999_999 }))).toEqual({ worker, event: 9_999_999 });
    const area = { start: 1, end: 9, tracks: ["0.1", "2.33"] };
    expect(textArea(areaText(area))).toEqual(area);
    expect(textArea(areaText({ ...area, tracks: [] }))).toEqual({ ...area, tracks: [] });
    const offsets = new Map([
      [-1, 40],
      [1, -250],
      [3, 1_000_000],
    ]);
    expect(textOffsets(offsetsText(offsets))).toEqual(offsets);
    expect(textNumbers("5~-7")).toEqual([5, -7]);
  });

  it("is written in full ns, so that a second writing says the same", () => {
    const text = rangeText({ start: 1.4, end: 99.6 });
    expect(rangeText(textRange(text) ?? { start: 0, end: 1 })).toBe(text);
  });

  it("ignores what it does not understand", () => {
    for (const text of ["", "5", "5~", "9~3", "a~b", "1e9~2e9"]) expect(textRange(text)).toBeNull();
    for (const text of ["", "1", "x.y", "-2.3", "1.-2"]) expect(textEvent(text)).toBeNull();
    expect(textOffsets("1~x.3~2.5")).toEqual(new Map([[2, 5]]));
    expect(textList("a~~b")).toEqual(["a", "b"]);
  });
});
