// Ticks of a logarithmic axis with a small range, which has no power of ten or only one.

const STEPS = [1, 2, 5];
/** A larger ratio has enough powers of ten. */
const MAX_RATIO = 300;

interface LogTicks {
  min: number;
  max: number;
  ticks: number[];
}

/** Return 1, 2 and 5 times the powers of ten around the values, or null if they span too much or nothing. */
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
