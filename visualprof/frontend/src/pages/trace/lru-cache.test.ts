import { expect, it } from "vitest";
import { Lru } from "./lru-cache";

it("forgets what was used longest ago, and stays within its budget", () => {
  const kept = new Lru<number>(10);
  kept.set("a", 1, 4);
  kept.set("b", 2, 4);
  expect(kept.get("a")).toBe(1);
  kept.set("c", 3, 4);
  expect([kept.has("a"), kept.has("b"), kept.has("c"), kept.weight]).toEqual([true, false, true, 8]);
});

it("weighs a replaced entry once, and keeps the newest even when it is too large", () => {
  const kept = new Lru<number>(10);
  kept.set("a", 1, 4);
  kept.set("a", 2, 6);
  expect([kept.weight, kept.get("a")]).toEqual([6, 2]);
  kept.set("b", 3, 50);
  expect([kept.size, kept.get("b")]).toEqual([1, 3]);
});
