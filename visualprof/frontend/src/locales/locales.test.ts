import { describe, expect, it } from "vitest";
import { importGraph, reachable, sources } from "../../tests/imports";
import { ALL_TEXTS, FIRST_TEXTS, LANGUAGES, locale, pageTexts, SHARED_TEXTS, setLanguage, t } from "./index";

/** The sources of the server's views, whose charts name texts. */
const views = import.meta.glob<string>("../../../views/*.py", { query: "?raw", import: "default", eager: true });
const files = import.meta.glob<object>(["./*/*.json", "!./server/*"], { import: "default", eager: true });

function leaves(node: object, path = ""): [key: string, text: string][] {
  return Object.entries(node).flatMap(([key, value]: [string, unknown]) =>
    typeof value === "object" && value !== null
      ? leaves(value, `${path}${key}.`)
      : [[path + key, String(value)] as [string, string]],
  );
}

/** The texts of a language by `FILE:KEY`. */
function texts(language: string): Map<string, string> {
  return new Map(
    ALL_TEXTS.flatMap((name) =>
      leaves(files[`./${language}/${name}.json`] ?? {}).map(([key, text]): [string, string] => [
        `${name}:${key}`,
        text,
      ]),
    ),
  );
}

const slots = (text: string) => [...text.matchAll(/\{\w+\}|%\w+%/g)].map(String).sort();

describe("locales", () => {
  const inFiles = texts("en");
  const english = new Map([...inFiles].map(([key, text]) => [key.replace(/^.*?:/, ""), text]));
  const others = LANGUAGES.filter((language) => language !== "en").map(texts);

  it("have each key in one file", () => expect(english.size).toBe(inFiles.size));

  it("have the same keys in the same files", () => {
    for (const other of others) expect([...other.keys()].sort()).toEqual([...inFiles.keys()].sort());
  });

  it("have the same placeholders", () => {
    for (const other of others)
      for (const [key, text] of inFiles)
        expect([key, slots(other.get(key) ?? "")]).toEqual([key, slots(text.replace(/^.* \| /, ""))]);
  });

  it("contain only messages that are read as plain text", async () => {
    await setLanguage("en", ALL_TEXTS);
    for (const [key, text] of english)
      if (slots(text).every((slot) => slot.startsWith("%")) && !text.includes(" | ")) expect(t(key)).toBe(text);
  });

  it("are switched to the language requested last, whichever loads first", async () => {
    await setLanguage("en", ALL_TEXTS);
    const before = setLanguage("zh", ALL_TEXTS);
    await Promise.all([setLanguage("en", ALL_TEXTS), before]);
    expect(locale.value).toBe("en");
  });

  it("define every metric that a table shows", () => {
    const columns = [...english.keys()]
      .filter((key) => /^column\.[^.]+$/.test(key))
      .map((key) => key.slice("column.".length));
    const onlyFacts = new Set([
      "framework",
      "format",
      "producer",
      "host",
      "rank",
      "world_size",
      "device_type",
      "events",
      "duration_ns",
      "kernels",
    ]);
    expect(columns.filter((column) => !english.has(`metric.${column}`) && !onlyFacts.has(column))).toEqual([]);
  });
});

describe("the files of texts", () => {
  const fileOf = new Map(
    ALL_TEXTS.flatMap((name) => leaves(files[`./en/${name}.json`] ?? {}).map(([key]) => [key, name] as const)),
  );
  const graph = importGraph();
  const isTest = (path: string) => path.endsWith(".test.ts");
  /** The columns of rare tables are in the file of their page. */
  const isNoRareColumn = ([key, name]: readonly [string, string]) => name === "tables" || !key.startsWith("column.in_");
  /**
   * Return the files of the texts that a source uses. Of a key such as `run.state.${state}`, the part before the slot
   * is known.
   */
  const usedFiles = (path: string) =>
    [...(sources[path] ?? "").matchAll(/["'`]([a-z_]+(?:\.\w+)*\.)(\w+(?=["'`]))?(?=["'`]|\$\{)/g)].flatMap(
      ([, start = "", end]) => [
        ...new Set(
          [...fileOf]
            .filter(isNoRareColumn)
            .filter(([key]) => (end === undefined ? key.startsWith(start) : key === start + end))
            .map(([, name]) => name),
        ),
      ],
    );
  /** Return the files of the texts that the charts of a source use: `@t:KEY`, or the start of a key. */
  const chartFiles = (path: string) =>
    [...(sources[path] ?? "").matchAll(/["`]charts\/(\w+)["`]/g)]
      .flatMap(([, view = ""]) => [...(views[`../../../views/${view}.py`] ?? "").matchAll(/@t:([\w.]+)/g)])
      .flatMap(([, start = ""]) => [
        ...new Set(
          [...fileOf]
            .filter(isNoRareColumn)
            .filter(([key]) => key.startsWith(start))
            .map(([, name]) => name),
        ),
      ]);
  const missing = (entry: string, loaded: readonly string[], skipped: (path: string) => boolean = isTest) =>
    reachable(graph, entry, skipped).flatMap((path) =>
      [...usedFiles(path), ...chartFiles(path)]
        .filter((name) => name !== "definitions" && !loaded.includes(name)) // loaded when a definition is opened
        .map((name) => `${path}: ${name}.json`),
    );

  it("loaded by every page contain all texts of the shell", () => {
    expect(missing("src/start.ts", [...FIRST_TEXTS, ...SHARED_TEXTS], (path) => path.startsWith("src/pages/"))).toEqual(
      [],
    );
  });

  it.each(Object.keys(sources).flatMap((path) => /^src\/pages\/(\w+)\/page\.vue$/.exec(path)?.[1] ?? []))(
    "of the page %s contain all of its texts",
    (page) => {
      expect(
        missing(`src/pages/${page}/page.vue`, [...FIRST_TEXTS, ...pageTexts(page)], (path) => path === "src/router.ts"),
      ).toEqual([]);
    },
  );
});
