import { textWidth } from "../layout/sizes";

/** Shorten a text to the available width. */
export function fitText(text: string, width: number, size: number): string {
  const share = size / 12;
  if (textWidth(text) * share <= width) return text;
  let keptLength = text.length;
  while (keptLength > 1 && textWidth(`${text.slice(0, keptLength)}…`) * share > width) keptLength -= 1;
  return `${text.slice(0, keptLength)}…`;
}
