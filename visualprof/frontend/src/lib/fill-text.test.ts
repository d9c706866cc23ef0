import { expect, it } from "vitest";
import { fillText } from "./fill-text";

const evidence = (key: string) => ({ share: "34 %" })[key] ?? null;

it("fills what is known", () => expect(fillText("Loading takes %share%.", evidence)).toBe("Loading takes 34 %."));
it("drops an optional part whose value is unknown", () => {
  expect(fillText("Slow[, by %missing%]: %share%[ (%share%)].", evidence)).toBe("Slow: 34 % (34 %).");
});
it("shows a dash for a required value that is unknown", () => expect(fillText("%missing%", evidence)).toBe("–"));
