import { describe, expect, it } from "vitest";
import { sortOrder, parseSeconds } from "./filters";

describe("the order of the rows", () => {
  it("is the view's own if it has one", () => {
    expect(sortOrder([{ column: "device_self_ns", descending: true }])).toEqual({ order_by: "time" });
    expect(sortOrder([{ column: "flops", descending: false }])).toEqual({ order_by: "+flops" });
    expect(sortOrder([{ column: "id", descending: true }])).toEqual({ order_by: "opr_id" });
  });

  it("is applied to the table otherwise", () =>
    expect(sortOrder([{ column: "in_shapes", descending: false }])).toBeNull());
});

describe("parseSeconds", () => {
  it.each([
    ["2", 0.002],
    ["100 us", 0.0001],
    ["100µs", 0.0001],
    ["1.5 ms", 0.0015],
    ["3s", 3],
    ["250 ns", 2.5e-7],
  ] as const)("%s", (text, value) => expect(parseSeconds(text)).toBe(value));
  it.each(["", "soon", "-1", "3 h"])("%j is not a time", (text) => expect(parseSeconds(text)).toBeNull());
});
