import { expect, it } from "vitest";
import { LruCache } from "./lru-cache";

it("removes the least recently used entries, and stays within its budget", () => {
  const cache = new LruCache<number>(10);
  cache.set("a", 1, 4);
  cache.set("b", 2, 4);
  expect(cache.get("a")).toBe(1);
  cache.set("c", 3, 4);
  expect([cache.has("a"), cache.has("b"), cache.has("c"), cache.weight]).toEqual([true, false, true, 8]);
});

it("counts a replaced entry once, and keeps the newest even if it is too large", () => {
  const cache = new LruCache<number>(10);
  cache.set("a", 1, 4);
  cache.set("a", 2, 6);
  expect([cache.weight, cache.get("a")]).toEqual([6, 2]);
  cache.set("b", 3, 50);
  expect([cache.size, cache.get("b")]).toEqual([1, 3]);
});
