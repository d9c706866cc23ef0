// What the server says, in the language of the page (docs/adr/0040). It says it in English; its sentences as they stand
// in its sources, with {} for what is put in, are the keys of said/*.json. {1} is the second of these, {} the next one.
import { shallowReactive } from "vue";
import { locale } from "./i18n";
import type { Language } from "./languages";

type Table = Record<string, string>;
type Sentence = { parts: readonly string[]; words: string };

const TABLES = import.meta.glob<Table>("./said/*.json", { import: "default" });
const asked = new Map<Language, Promise<void>>();
const learned = shallowReactive(new Map<Language, readonly Sentence[]>());

/** Those that say most by themselves first: "{} has no column {}" before "{} has no {}". */
function read(table: Table): Sentence[] {
  const plain = ({ parts }: Sentence) => parts.join("").length;
  return Object.entries(table).map(([key, words]) => ({ parts: key.split("{}"), words })).sort((a, b) => plain(b) - plain(a));
}

/** What was put in, or null where the text is another sentence. Looks at each character once, however long a log is. */
function put_in(text: string, [first = "", ...others]: readonly string[]): string[] | null {
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

async function learn(language: Language): Promise<void> {
  const table = await TABLES[`./said/${language}.json`]?.();
  if (table) learned.set(language, read(table));
}

/** Fetches the sentences of the language once, when the server says something for the first time. English has none. */
export function learn_said(language: Language): Promise<void> {
  const learning = asked.get(language) ?? learn(language);
  asked.set(language, learning);
  return learning;
}

/** A sentence of the server's, or pieces of them after one another; what no table knows stays as it is. */
export function said(text: string): string {
  void learn_said(locale.value);
  return translated(text, learned.get(locale.value) ?? []);
}

function translated(text: string, sentences: readonly Sentence[]): string {
  for (const { parts, words } of sentences) {
    const values = put_in(text, parts);
    let next = 0;
    if (values) return words.replace(/\{(\d*)\}/g, (_slot, place: string) => translated(values[place ? Number(place) : next++] ?? "", sentences));
  }
  const [, head = "", mark = "", rest = ""] = /^(.+?)([:;] )(.+)$/s.exec(text) ?? [];
  const pieces = mark && sentences.length > 0 ? [translated(head, sentences), translated(rest, sentences)] : [];
  return pieces[0] === head && pieces[1] === rest ? text : pieces.join(mark === ": " ? "：" : "；") || text;
}
