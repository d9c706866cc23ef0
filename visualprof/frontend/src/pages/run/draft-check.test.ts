import { describe, expect, it } from "vitest";
import { isWithin } from "./draft-check";

describe("within", () => {
  it("holds the field itself and what is below it", () => {
    expect(isWithin("specs[1]", "specs[1]")).toBe(true);
    expect(isWithin("specs[1].agent", "specs[1]")).toBe(true);
    expect(isWithin("inputs[0].dims[1]", "inputs[0].dims")).toBe(true);
  });
  it("does not take a longer name for it", () => {
    expect(isWithin("specs[12]", "specs[1]")).toBe(false);
    expect(isWithin("dims.batch_size", "dims.batch")).toBe(false);
  });
});
