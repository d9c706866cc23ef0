// Parse sizes that users type.

const POWERS: Record<string, number> = { "": 0, k: 1, m: 2, g: 3, t: 4 };

/** Parse "512", "10 MiB", "4k" and "1.5gb" as bytes, with factors of 1024; null if it is not a size. */
export function parseBytes(text: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$/i.exec(text);
  if (!match) return null;
  return Math.round(Number(match[1]) * 1024 ** (POWERS[(match[2] ?? "").toLowerCase()] ?? 0));
}
