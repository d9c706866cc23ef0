/**
 * Fill `%key%` in a text. A part in square brackets is omitted if one of its values is unknown, so that the sentence
 * stays complete whatever evidence a finding has.
 */
export function fillText(text: string, value: (key: string) => string | null): string {
  const insert = (part: string) => part.replace(/%(\w+)%/g, (_all, key: string) => value(key) ?? "–");
  const optional = text.replace(/\[([^\]]*)\]/g, (_all, part: string) => {
    const keys = [...part.matchAll(/%(\w+)%/g)].map((match) => match[1] ?? "");
    return keys.every((key) => value(key) !== null) ? part : "";
  });
  return insert(optional);
}
