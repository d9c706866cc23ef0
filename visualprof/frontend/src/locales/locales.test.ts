import { describe, expect, it } from "vitest";
import { i18n, speak } from "./index";
import en from "./en.json";
import zh from "./zh.json";

function leaves(node: object, path = ""): [key: string, text: string][] {
  return Object.entries(node).flatMap(([key, value]: [string, unknown]) =>
    typeof value === "object" && value !== null ? leaves(value, `${path}${key}.`) : [[path + key, String(value)] as [string, string]],
  );
}

const slots = (text: string) => [...text.matchAll(/\{\w+\}|%\w+%/g)].map(String).sort();

describe("locales", () => {
  const english = new Map(leaves(en));
  const chinese = new Map(leaves(zh));

  it("have the same keys", () => expect([...chinese.keys()].sort()).toEqual([...english.keys()].sort()));

  it("have the same placeholders", () => {
    for (const [key, text] of english) expect([key, slots(chinese.get(key) ?? "")]).toEqual([key, slots(text.replace(/^.* \| /, ""))]);
  });

  it("hold only messages that are read as plain text", async () => {
    await speak("en", true);
    const { t } = i18n.global;
    for (const [key, text] of english) if (slots(text).every((slot) => slot.startsWith("%")) && !text.includes(" | ")) expect(t(key)).toBe(text);
  });

  it("are spoken as asked for last, whichever words come first", async () => {
    await speak("en", true);
    const before = speak("zh", true);
    await Promise.all([speak("en", true), before]);
    expect(i18n.global.locale.value).toBe("en");
  });

  it("define every number that a table shows", () => {
    const shown = [...english.keys()].filter((key) => /^column\.[^.]+$/.test(key)).map((key) => key.slice("column.".length));
    const only_facts = new Set(["framework", "format", "producer", "host", "rank", "world_size", "device_type", "events", "duration_ns", "kernels"]);
    expect(shown.filter((column) => !english.has(`metric.${column}`) && !only_facts.has(column))).toEqual([]);
  });
});
