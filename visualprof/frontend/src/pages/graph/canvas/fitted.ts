import { text_width } from "../layout/sizes";

/** As much of a text as fits. */
export function fitted(text: string, width: number, size: number): string {
  const share = size / 12;
  if (text_width(text) * share <= width) return text;
  let kept = text.length;
  while (kept > 1 && text_width(`${text.slice(0, kept)}…`) * share > width) kept -= 1;
  return `${text.slice(0, kept)}…`;
}
