import { expect, test } from "vitest";
import { strength } from "./password";

test("what the server refuses is refused while it is typed", () => {
  expect(strength("ninechars", "")).toBe("short");
  expect(strength("abcabcabcabc", "")).toBe("easy"); // three different ones
  expect(strength("Ann@Example.org", " ann@example.org ")).toBe("easy");
  expect(strength("annabelle-lee", "annabelle-lee@example.org")).toBe("easy");
});

test("longer and more different ones are better", () => {
  expect(strength("abcdabcdabcd", "")).toBe("fair"); // 12 * log2(4) = 24 bits
  expect(strength("four words are enough", "")).toBe("good"); // 21 * log2(12) = 75 bits
});
