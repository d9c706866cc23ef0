import { describe, expect, it } from "vitest";
import {
  area_text,
  event_text,
  offsets_text,
  range_text,
  text_area,
  text_event,
  text_list,
  text_numbers,
  text_offsets,
  text_range,
} from "./url";

describe("address", () => {
  it("gives back what it was given", () => {
    for (const range of [
      { start: -12, end: 5 },
      { start: 0, end: 2 ** 53 - 1 },
    ])
      expect(text_range(range_text(range))).toEqual(range);
    for (const worker of [3, -1])
      expect(text_event(event_text({ worker, event: 9_999_999 }))).toEqual({ worker, event: 9_999_999 });
    const area = { start: 1, end: 9, tracks: ["0.1", "2.33"] };
    expect(text_area(area_text(area))).toEqual(area);
    expect(text_area(area_text({ ...area, tracks: [] }))).toEqual({ ...area, tracks: [] });
    const offsets = new Map([
      [-1, 40],
      [1, -250],
      [3, 1_000_000],
    ]);
    expect(text_offsets(offsets_text(offsets))).toEqual(offsets);
    expect(text_numbers("5~-7")).toEqual([5, -7]);
  });

  it("is written in full ns, so that a second writing says the same", () => {
    const text = range_text({ start: 1.4, end: 99.6 });
    expect(range_text(text_range(text) ?? { start: 0, end: 1 })).toBe(text);
  });

  it("ignores what it does not understand", () => {
    for (const text of ["", "5", "5~", "9~3", "a~b", "1e9~2e9"]) expect(text_range(text)).toBeNull();
    for (const text of ["", "1", "x.y", "-2.3", "1.-2"]) expect(text_event(text)).toBeNull();
    expect(text_offsets("1~x.3~2.5")).toEqual(new Map([[2, 5]]));
    expect(text_list("a~~b")).toEqual(["a", "b"]);
  });
});
