import { expect, test } from "vitest";
import { passwordStrength } from "./password";

test("a password that the server rejects is rejected while typing", () => {
  expect(passwordStrength("ninechars", "")).toBe("short");
  expect(passwordStrength("abcabcabcabc", "")).toBe("easy"); // three different ones
  expect(passwordStrength("Ann@Example.org", " ann@example.org ")).toBe("easy");
  expect(passwordStrength("annabelle-lee", "annabelle-lee@example.org")).toBe("easy");
});

test("longer passwords with more distinct characters are stronger", () => {
  expect(passwordStrength("abcdabcdabcd", "")).toBe("fair"); // 12 * log2(4) = 24 bits
  expect(passwordStrength("four words are enough", "")).toBe("good"); // 21 * log2(12) = 75 bits
});
