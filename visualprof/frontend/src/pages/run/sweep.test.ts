import { describe, expect, it } from "vitest";
import { parse_sweep, sweep_text } from "./sweep";

describe("parse_sweep", () => {
  it("doubles through a range and ends with its end", () => expect(parse_sweep("1:10")).toEqual([1, 2, 4, 8, 10]));
  it("goes in steps", () => expect(parse_sweep("8:32:8")).toEqual([8, 16, 24, 32]));
  it("takes lists with any comma, each size once", () => expect(parse_sweep("4，1, 4、2")).toEqual([4, 1, 2]));
  it("mixes them", () => expect(parse_sweep("1:4 100")).toEqual([1, 2, 4, 100]));
  it.each(["", "0", "1:0", "-1", "a", "1:2:0", "1:65:1", "1.5", "9".repeat(30)])("refuses %j", (text) => expect(parse_sweep(text)).toBeNull());
});

describe("sweep_text", () => {
  it("is the range where that reads the same", () => expect(sweep_text([1, 2, 4, 8])).toBe("1:8"));
  it("is the list otherwise", () => expect(sweep_text([1, 3, 8])).toBe("1, 3, 8"));
  it("survives reading", () => expect(parse_sweep(sweep_text([5]))).toEqual([5]));
});
