import { describe, expect, it } from "vitest";
import { isWithin } from "./draft-check";

describe("isWithin", () => {
  it("includes the field itself and fields below it", () => {
    expect(isWithin("specs[1]", "specs[1]")).toBe(true);
    expect(isWithin("specs[1].agent", "specs[1]")).toBe(true);
    expect(isWithin("inputs[0].dims[1]", "inputs[0].dims")).toBe(true);
  });
  it("excludes longer names", () => {
    expect(isWithin("specs[12]", "specs[1]")).toBe(false);
    expect(isWithin("dims.batch_size", "dims.batch")).toBe(false);
  });
});
