import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { formatTarget, linkTarget, parseTarget, showTarget } from "./link-target";
import { markOf } from "./address";

describe("targets of links", () => {
  it("are a place and an entry, whose name may have colons", () => {
    expect(parseTarget("operator:aten::mm")).toEqual({ place: "operator", key: "aten::mm" });
    expect(parseTarget("steps")).toEqual({ place: "steps", key: null });
    expect(formatTarget("operator", "aten::mm")).toBe("operator:aten::mm");
  });

  it("follow from the row that a link selects", () => {
    expect(markOf("/operator", { "is.name": "aten::mm" })).toBe("operator:aten::mm");
    expect(markOf("/idle", { change: "gpu*2" })).toBe("whatif_replay");
    expect(markOf("/idle", {})).toBe("idle_causes");
    expect(markOf("/kernel", { table: "memory_operations" })).toBeUndefined();
    expect(markOf("/trace", { longest: "x" })).toBeUndefined();
  });
});

describe("showing a target", () => {
  const scrolled = vi.fn();
  beforeEach(() => {
    vi.useFakeTimers();
    Element.prototype.scrollIntoView = scrolled;
    vi.stubGlobal("matchMedia", () => ({ matches: true }));
    document.body.innerHTML = `<section data-place="events"><p data-key="a">a</p></section>`;
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  it("scrolls to an entry, marks it, and removes the mark later", () => {
    showTarget("events", "a");
    vi.advanceTimersByTime(200);
    expect(scrolled).toHaveBeenCalled();
    expect(document.querySelector("p")?.className).toBe("marked");
    vi.advanceTimersByTime(6000);
    expect(document.querySelector("p")?.className).toBe("");
    expect(linkTarget.value).toBeNull();
  });

  it("waits for an entry that is not listed yet, and then marks its place", () => {
    showTarget("events", "b");
    vi.advanceTimersByTime(1000);
    expect(document.querySelectorAll(".marked")).toHaveLength(0);
    vi.advanceTimersByTime(3000);
    expect(document.querySelector("section")?.className).toBe("marked");
  });
});
