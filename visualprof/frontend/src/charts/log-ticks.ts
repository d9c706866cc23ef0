// Marks of a logarithmic axis that spans little: between two powers of ten there would be none.

const STEPS = [1, 2, 5];
/** From here on the powers of ten suffice. */
const FAR = 300;

interface LogTicks {
  min: number;
  max: number;
  ticks: number[];
}

/** 1, 2 and 5 times the powers of ten around the values; null where those span too much or nothing. */
export function logTicks(values: readonly number[]): LogTicks | null {
  const known = values.filter((value) => Number.isFinite(value) && value > 0);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  if (known.length === 0 || most / least > FAR) return null;
  const all: number[] = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)) + 1; power += 1)
    all.push(...STEPS.map((step) => Number(`${step}e${power}`)));
  const first = all.filter((tick) => tick <= least).length - 1;
  const last = all.findIndex((tick) => tick >= most);
  const ticks = all.slice(Math.max(0, first), Math.max(last, first + 1) + 1);
  return { min: ticks[0] ?? least, max: ticks[ticks.length - 1] ?? most, ticks };
}
