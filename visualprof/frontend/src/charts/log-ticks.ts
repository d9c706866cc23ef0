// Marks of a logarithmic axis that spans little: between two powers of ten there would be none.

const STEPS = [1, 2, 5];
/** From here on the powers of ten suffice. */
const MAX_RATIO = 300;

interface LogTicks {
  min: number;
  max: number;
  ticks: number[];
}

/** 1, 2 and 5 times the powers of ten around the values; null where those span too much or nothing. */
export function logTicks(values: readonly number[]): LogTicks | null {
  const positive = values.filter((value) => Number.isFinite(value) && value > 0);
  const [min, max] = [Math.min(...positive), Math.max(...positive)];
  if (positive.length === 0 || max / min > MAX_RATIO) return null;
  const allTicks: number[] = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)) + 1; power += 1)
    allTicks.push(...STEPS.map((step) => Number(`${step}e${power}`)));
  const first = allTicks.filter((tick) => tick <= min).length - 1;
  const last = allTicks.findIndex((tick) => tick >= max);
  const ticks = allTicks.slice(Math.max(0, first), Math.max(last, first + 1) + 1);
  return { min: ticks[0] ?? min, max: ticks[ticks.length - 1] ?? max, ticks };
}
