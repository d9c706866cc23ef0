import { expect, it } from "vitest";
import { fillText } from "./fill-text";

const evidence = (key: string) => ({ share: "34 %" })[key] ?? null;

it("fills known values", () => expect(fillText("Loading takes %share%.", evidence)).toBe("Loading takes 34 %."));
it("omits an optional part with an unknown value", () => {
  expect(fillText("Slow[, by %missing%]: %share%[ (%share%)].", evidence)).toBe("Slow: 34 % (34 %).");
});
it("shows a dash for an unknown required value", () => expect(fillText("%missing%", evidence)).toBe("–"));
