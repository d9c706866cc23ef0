/**
 * The server's messages in the language of the web UI (docs/adr/0040). The server writes English; `server/en.json` has
 * the English text of each message by its id, with {0}, {1} as placeholders, `server/zh.json` its translation. A message
 * is recognized by its English text, because it may come from a stored result, another process or an agent.
 */
import { shallowReactive } from "vue";
import { locale } from "./i18n";
import type { Language } from "./languages";

type Catalog = Record<string, string>;
type Message = { parts: readonly string[]; words: string };

const CATALOGS = import.meta.glob<Catalog>("./server/*.json", { import: "default" });
const loading = new Map<Language, Promise<void>>();
const messagesByLanguage = shallowReactive(new Map<Language, readonly Message[]>());

/** Pair the texts of two catalogs by id. Longer texts come first: "{0} has no column {1}" before "{0} has no {1}". */
function pairTexts(english: Catalog, words: Catalog): Message[] {
  const length = ({ parts }: Message) => parts.join("").length;
  return Object.entries(words)
    .map(([id, text]) => ({ parts: (english[id] ?? "").split(/\{\d+\}/), words: text }))
    .sort((a, b) => length(b) - length(a));
}

/** Return the placeholders' values, or null if `text` is another message. Reads each character once, however long a log is. */
function matchValues(text: string, [first = "", ...others]: readonly string[]): string[] | null {
  const last = others.pop();
  if (last === undefined) return text === first ? [] : null;
  if (!text.startsWith(first) || !text.endsWith(last)) return null;
  const values: string[] = [];
  let at = first.length;
  for (const part of others) {
    const end = text.indexOf(part, at);
    if (end < 0) return null;
    values.push(text.slice(at, end));
    at = end + part.length;
  }
  return at > text.length - last.length ? null : [...values, text.slice(at, text.length - last.length)];
}

async function loadCatalogs(language: Language): Promise<void> {
  const [english, words] = [CATALOGS["./server/en.json"], CATALOGS[`./server/${language}.json`]];
  if (language !== "en" && english && words)
    messagesByLanguage.set(language, pairTexts(...(await Promise.all([english(), words()]))));
}

/** Fetch the catalogs of a language once, when the first message arrives. English needs none. */
export function loadServerMessages(language: Language): Promise<void> {
  const learning = loading.get(language) ?? loadCatalogs(language);
  loading.set(language, learning);
  return learning;
}

/** Translate a message of the server, or several that follow one another. An unknown text stays as it is. */
export function translateMessage(text: string): string {
  void loadServerMessages(locale.value);
  return translate(text, messagesByLanguage.get(locale.value) ?? []);
}

function translate(text: string, messages: readonly Message[]): string {
  for (const { parts, words } of messages) {
    const values = matchValues(text, parts);
    if (values)
      return words.replace(/\{(\d+)\}/g, (_slot, index: string) => translate(values[Number(index)] ?? "", messages));
  }
  const [, head = "", mark = "", rest = ""] = /^(.+?)([:;] )(.+)$/s.exec(text) ?? [];
  const pieces = mark && messages.length > 0 ? [translate(head, messages), translate(rest, messages)] : [];
  return pieces[0] === head && pieces[1] === rest ? text : pieces.join(mark === ": " ? "：" : "；") || text;
}
