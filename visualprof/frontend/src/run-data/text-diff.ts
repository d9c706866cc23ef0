// The difference of two texts by lines.

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
}

const MAX_CELLS = 4_000_000; // of the table of the longest common subsequence

/** Return the lines of both texts; without a common sequence if the texts are too long to compare. */
export function diffLines(base: string, changed: string): DiffLine[] {
  const [a, b] = [base.split("\n"), changed.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const line = (kind: DiffLine["kind"]) => (text: string) => ({ kind, text });
  const middle = diffMiddle(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [...a.slice(0, start).map(line("same")), ...middle, ...a.slice(a.length - end).map(line("same"))];
}

function diffMiddle(a: readonly string[], b: readonly string[]): DiffLine[] {
  const [rows, columns] = [a.length + 1, b.length + 1];
  if (a.length === 0 || b.length === 0 || rows * columns > MAX_CELLS)
    return [
      ...a.map((text) => ({ kind: "removed" as const, text })),
      ...b.map((text) => ({ kind: "added" as const, text })),
    ];
  const length = new Uint32Array(rows * columns);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let k = b.length - 1; k >= 0; k -= 1)
      length[i * columns + k] =
        a[i] === b[k]
          ? (length[(i + 1) * columns + k + 1] ?? 0) + 1
          : Math.max(length[(i + 1) * columns + k] ?? 0, length[i * columns + k + 1] ?? 0);
  const lines: DiffLine[] = [];
  let [i, k] = [0, 0];
  while (i < a.length || k < b.length) {
    if (i < a.length && k < b.length && a[i] === b[k]) {
      lines.push({ kind: "same", text: a[i] ?? "" });
      [i, k] = [i + 1, k + 1];
    } else if (
      k >= b.length ||
      (i < a.length && (length[(i + 1) * columns + k] ?? 0) >= (length[i * columns + k + 1] ?? 0))
    ) {
      lines.push({ kind: "removed", text: a[i] ?? "" });
      i += 1;
    } else {
      lines.push({ kind: "added", text: b[k] ?? "" });
      k += 1;
    }
  }
  return lines;
}
