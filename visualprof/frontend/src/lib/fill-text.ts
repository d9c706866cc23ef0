/**
 * Fills `%key%` in a text. A part in square brackets is optional: it goes when one of its values is unknown,
 * so that a sentence stays whole whatever evidence a finding brings.
 */
export function fillText(text: string, value: (key: string) => string | null): string {
  const insert = (part: string) => part.replace(/%(\w+)%/g, (_all, key: string) => value(key) ?? "–");
  const optional = text.replace(/\[([^\]]*)\]/g, (_all, part: string) => {
    const keys = [...part.matchAll(/%(\w+)%/g)].map((match) => match[1] ?? "");
    return keys.every((key) => value(key) !== null) ? part : "";
  });
  return insert(optional);
}
