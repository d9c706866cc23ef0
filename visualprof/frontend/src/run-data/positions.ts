// Short texts of positions and values.
export type Axis = "step" | "relative" | "wall";

const UNITS = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
] as const;

/** Return a position as a text: a step, a duration in one unit, or a local time. */
export function formatPosition(axis: Axis, value: number): string {
  if (axis === "step")
    return Math.abs(value) >= 1e5 ? `${Number((value / 1000).toPrecision(5))}k` : `${+value.toPrecision(6)}`;
  if (axis === "relative") {
    const [unit, seconds] = UNITS.find(([, size]) => Math.abs(value) >= size) ?? ["s", 1];
    return `${Number((value / seconds).toPrecision(4))} ${unit}`;
  }
  return new Date(value * 1000).toLocaleString(undefined, {
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });
}

/** Return a value with four significant digits. */
export function formatValue(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return `${Number(value.toPrecision(4))}`;
}
