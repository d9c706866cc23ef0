// Which runs the page shows, the groups of their tags, and the colors of their lines.
import type { TagsAnswer } from "../api";

export const MAX_RUNS = 100;

export interface TagGroup {
  name: string;
  tags: string[];
}

/** Return a regular expression, or null if the text is not a valid one. An empty text matches everything. */
export function parsePattern(text: string): RegExp | null {
  try {
    return new RegExp(text);
  } catch {
    return null;
  }
}

export const lineName = (run: string, line: string): string => (line === "." ? run : `${run} / ${line}`);

/** Group tags by the part before the first slash. Pinned tags come first, in a group of their own without a name. */
export function groupTags(tags: readonly string[], pins: readonly string[]): TagGroup[] {
  const groups = new Map<string, string[]>();
  for (const tag of tags) {
    const name = tag.includes("/") ? tag.slice(0, tag.indexOf("/")) : tag;
    groups.set(name, [...(groups.get(name) ?? []), tag]);
  }
  const pinned = pins.filter((pin) => tags.includes(pin));
  const named = [...groups].map(([name, members]) => ({ name, tags: members }));
  return pinned.length > 0 ? [{ name: "", tags: pinned }, ...named] : named;
}

/** Return the distinct tags of an answer that match a pattern, in the order of the answer. */
export function matchingTags(answer: TagsAnswer, pattern: RegExp): string[] {
  return [...new Set(answer.columns.tag as string[])].filter((tag) => pattern.test(tag)).sort();
}

/** Return the distinct lines of an answer, sorted. */
export function linesOf(answer: TagsAnswer): string[] {
  const lines = answer.columns.line as string[];
  const names = (answer.columns.run as string[]).map((run, row) => lineName(run, lines[row] ?? ""));
  return [...new Set(names)].sort(new Intl.Collator("en", { numeric: true }).compare);
}

function hash(text: string): number {
  let value = 2166136261;
  for (const character of text) value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 16777619) >>> 0;
  return value;
}

/**
 * Return the color of each line. Lines of which the pattern matches the same text share a color. The color follows from
 * the name, so that a run keeps its color; a taken color is replaced by the next free one.
 */
export function lineColors(names: readonly string[], pattern: RegExp | null, palette: readonly string[]) {
  const keyOf = (name: string) => {
    const match = pattern?.exec(name);
    return match ? (match[1] ?? match[0]) : name;
  };
  const taken = new Map<string, number>();
  for (const key of [...new Set(names.map(keyOf))]) {
    let index = hash(key) % palette.length;
    const used = new Set(taken.values());
    for (let tries = 0; used.has(index) && tries < palette.length; tries += 1) index = (index + 1) % palette.length;
    taken.set(key, index);
  }
  return new Map(names.map((name) => [name, palette[taken.get(keyOf(name)) ?? 0] ?? "#888"]));
}
