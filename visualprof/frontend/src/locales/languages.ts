// The languages of the page: the files beside this one. A further language is a further file.
export type Messages = { [key: string]: string | Messages };

/** The words that every page needs, and those of some pages alone (vite.config.ts). */
export const EARLY = import.meta.glob<Messages>("./*.json", { query: "?early", import: "default" });
export const LATE = import.meta.glob<Messages>("./*.json", { query: "?late", import: "default" });

export type Language = string;

export const LANGUAGES: readonly Language[] = Object.keys(EARLY).map((path) => path.replace(/^\.\/|\.json$/g, "")).sort();

/** What a button calls it: by its own name where that is short, as 中文 is. */
export function short_name(language: Language): string {
  const name = new Intl.DisplayNames([language], { type: "language" }).of(language) ?? language;
  return /^\p{Script=Latin}/u.test(name) ? language.toUpperCase() : name;
}
