// The texts of the web UI in its current language. A text may have slots, `{name}`, and forms for one and many ("{n}
// row | {n} rows"), or for none, one and many.
import { readonly, ref, shallowReactive } from "vue";
import { FALLBACK, FILES, FIRST_TEXTS, type Language, type Messages } from "./languages";

type Slots = Readonly<Record<string, unknown>>;

const texts = shallowReactive(new Map<Language, ReadonlyMap<string, string>>());
const current = ref<Language>(FALLBACK);
export const locale = readonly(current);

function lookup(key: string): string | undefined {
  return texts.get(current.value)?.get(key) ?? texts.get(FALLBACK)?.get(key);
}

/** Whether the key has a text. */
export function te(key: string): boolean {
  return lookup(key) !== undefined;
}

/** Return the keys of the loaded texts that start with `prefix`. */
export function keysBelow(prefix: string): string[] {
  return [...(texts.get(current.value) ?? texts.get(FALLBACK) ?? new Map<string, string>()).keys()].filter((key) =>
    key.startsWith(prefix),
  );
}

function chooseForm(forms: readonly string[], count: number): string {
  if (forms.length === 2) return forms[count === 0 || count > 1 ? 1 : 0] ?? "";
  return forms[Math.min(count, forms.length - 1)] ?? "";
}

/**
 * Return the text of a key with its slots filled, or the key if it has no text. The slot `n`, if it is a number, or
 * `count` selects the form.
 */
export function t(key: string, slots: Slots = {}, count = 1): string {
  const text = lookup(key);
  if (text === undefined) return key;
  const form = chooseForm(text.split(" | "), typeof slots["n"] === "number" ? slots["n"] : count);
  return form.replace(/\{(\w+)\}/g, (slot, name: string) => (name in slots ? String(slots[name]) : slot));
}

function* entries(messages: Messages, prefix = ""): Generator<[key: string, text: string]> {
  for (const [name, value] of Object.entries(messages)) {
    if (typeof value === "string") yield [prefix + name, value];
    else yield* entries(value, `${prefix}${name}.`);
  }
}

const loading = new Map<string, Promise<void>>();

async function load(language: Language, path: string): Promise<void> {
  const messages = await FILES[path]?.();
  if (messages) texts.set(language, new Map([...(texts.get(language) ?? []), ...entries(messages)]));
}

function loadOnce(language: Language, name: string): Promise<void> {
  const path = `./${language}/${name}.json`;
  const promise = loading.get(path) ?? load(language, path);
  loading.set(path, promise);
  return promise;
}

const needed = new Set<string>(FIRST_TEXTS);
let requested: Language | null = null;

/** Load files of texts in addition to those loaded before, and switch the web UI to this language. */
export async function setLanguage(language: Language, files: readonly string[] = []): Promise<void> {
  requested = language;
  for (const name of files) needed.add(name);
  await Promise.all([...needed].map((name) => loadOnce(language, name)));
  // The user may have chosen another language meanwhile.
  if (language !== requested) return;
  current.value = language;
  document.documentElement.lang = t("shell.language_tag");
}
