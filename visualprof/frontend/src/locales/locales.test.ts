import { describe, expect, it } from "vitest";
import { i18n, learn_page, speak } from "./index";
import en from "./en.json";
import zh from "./zh.json";

function leaves(node: object, path = ""): [key: string, text: string][] {
  return Object.entries(node).flatMap(([key, value]: [string, unknown]) =>
    typeof value === "object" && value !== null ? leaves(value, `${path}${key}.`) : [[path + key, String(value)] as [string, string]],
  );
}

const slots = (text: string) => [...text.matchAll(/\{\w+\}|%\w+%/g)].map(String).sort();

const of_pages = import.meta.glob<{ default: object }>("../pages/*/words/*.json", { eager: true });
const words = (language: string, main: object) => new Map([main, ...Object.entries(of_pages).filter(([path]) => path.endsWith(`/${language}.json`)).map(([, file]) => file.default)].flatMap((part) => leaves(part)));

describe("locales", () => {
  const english = words("en", en);
  const chinese = words("zh", zh);

  it("have the same keys", () => expect([...chinese.keys()].sort()).toEqual([...english.keys()].sort()));

  it("have the same placeholders", () => {
    for (const [key, text] of english) expect([key, slots(chinese.get(key) ?? "")]).toEqual([key, slots(text.replace(/^.* \| /, ""))]);
  });

  it("hold only messages that are read as plain text", async () => {
    for (const path of Object.keys(of_pages)) await learn_page(path.split("/")[2] ?? "");
    await speak("en");
    const { t } = i18n.global;
    for (const [key, text] of english) if (slots(text).every((slot) => slot.startsWith("%")) && !text.includes(" | ")) expect(t(key)).toBe(text);
  });

  it("define every number that a table shows", () => {
    const shown = [...english.keys()].filter((key) => /^column\.[^.]+$/.test(key)).map((key) => key.slice("column.".length));
    const only_facts = new Set(["framework", "format", "producer", "host", "rank", "world_size", "device_type", "events", "duration_ns", "kernels"]);
    expect(shown.filter((column) => !english.has(`metric.${column}`) && !only_facts.has(column))).toEqual([]);
  });
});
