/** By how much a figure of an evaluation got worse, below 0 better; latencies are better small, rates large. */
export function relativeWorsening(figure: string, deltaRatio: number | null): number | null {
  if (deltaRatio === null) return null;
  return figure === "qps" || figure.endsWith("_s") ? -deltaRatio : deltaRatio;
}
