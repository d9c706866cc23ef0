// The languages of the page: the files beside this one. A further language is a further file.
type Messages = { [key: string]: string | Messages };

export const FILES = import.meta.glob<{ default: Messages }>("./*.json");

/** Words that one page alone shows: no other waits for them. */
export const PAGE_FILES = import.meta.glob<{ default: Messages }>("../pages/*/words/*.json");

export type Language = string;

export const LANGUAGES: readonly Language[] = Object.keys(FILES).map((path) => path.replace(/^\.\/|\.json$/g, "")).sort();

/** What a button calls it: by its own name where that is short, as 中文 is. */
export function short_name(language: Language): string {
  const name = new Intl.DisplayNames([language], { type: "language" }).of(language) ?? language;
  return /^\p{Script=Latin}/u.test(name) ? language.toUpperCase() : name;
}
