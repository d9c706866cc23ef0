// The sizes of a sweep as people type them: "1:64" doubles, "8:64:8" adds, "1, 2, 4" lists.

export const MOST_VALUES = 64;

function doubled(from: number, to: number): number[] {
  const values: number[] = [];
  for (let value = from; value < to; value *= 2) values.push(value);
  return [...values, to];
}

function stepped(from: number, to: number, step: number): number[] {
  const count = Math.min(MOST_VALUES + 1, Math.floor((to - from) / step) + 1);
  return Array.from({ length: count }, (_, place) => from + place * step);
}

function part(text: string): number[] | null {
  const match = /^(\d+)(?::(\d+)(?::\+?(\d+))?)?$/.exec(text);
  if (!match) return null;
  const [from, to, step] = [match[1], match[2], match[3]].map((each) => (each === undefined ? null : Number(each)));
  if (!from || from < 1) return null;
  if (to === null || to === undefined) return [from];
  if (to < from || step === 0) return null;
  return step ? stepped(from, to, step) : doubled(from, to);
}

/** Its sizes, each once, in the order given; null when it is none or has too many. */
export function parse_sweep(text: string): number[] | null {
  const parts = text.split(/[\s,，、]+/).filter(Boolean).map(part);
  if (parts.length === 0 || parts.includes(null)) return null;
  const values = [...new Set(parts.flatMap((each) => each ?? []))];
  return values.length > MOST_VALUES || values.some((value) => !Number.isSafeInteger(value)) ? null : values;
}

/** The shortest text that reads as these sizes. */
export function sweep_text(values: readonly number[]): string {
  const [first, last] = [values[0], values[values.length - 1]];
  if (first !== undefined && last !== undefined && values.length > 2) {
    const range = `${first}:${last}`;
    if (parse_sweep(range)?.join() === values.join()) return range;
  }
  return values.join(", ");
}
