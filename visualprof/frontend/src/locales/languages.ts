// The languages of the web UI: one folder per language next to this file.
export type Messages = { [key: string]: string | Messages };

/** By path, `./LANGUAGE/NAME.json`. A file with the name of a page has the texts of that page. */
export const FILES = import.meta.glob<Messages>(["./*/*.json", "!./server/*"], { import: "default" });

export type Language = string;

const parts = (path: string) =>
  path.slice("./".length, -".json".length).split("/") as [language: Language, name: string];
const unique = (values: readonly string[]) => [...new Set(values)].sort();

export const LANGUAGES: readonly Language[] = unique(Object.keys(FILES).map((path) => parts(path)[0]));
export const ALL_TEXTS: readonly string[] = unique(Object.keys(FILES).map((path) => parts(path)[1]));

/** Used for texts that a language lacks. */
export const FALLBACK: Language = "en";

/** Files that the first page needs. */
export const FIRST_TEXTS: readonly string[] = ["shell", "tables", "overview"];

/** Files that every other page, dialogs and tooltips need. */
export const SHARED_TEXTS: readonly string[] = [
  "metrics",
  "dialogs",
  "compare",
  "operator",
  "kernel",
  "memory",
  "run",
  "evaluation",
  "account",
  "serving",
];

/** Files of other pages that a page also needs. */
const TEXTS_OF_OTHER_PAGES: Readonly<Record<string, readonly string[]>> = {
  curves: ["scalars"],
  distributed: ["idle"],
  distributions: ["scalars"],
  embeddings: ["scalars"],
  graph: ["trace"],
  models: ["agents"],
  people: ["agents"],
  run: ["agents"],
  samples: ["scalars"],
  trace: ["idle"],
  trials: ["scalars"],
};

/** Return the files with the texts of a page. */
export function pageTexts(page: string): readonly string[] {
  return [...SHARED_TEXTS, page, ...(TEXTS_OF_OTHER_PAGES[page] ?? [])].filter((name) => ALL_TEXTS.includes(name));
}

/** Return the language's name for a button: its own short name, such as 中文, or its code. */
export function shortName(language: Language): string {
  const name = new Intl.DisplayNames([language], { type: "language" }).of(language) ?? language;
  return /^\p{Script=Latin}/u.test(name) ? language.toUpperCase() : name;
}
