/** Return how much worse a metric became, negative if better. Lower is better for latencies, higher for rates. */
export function relativeWorsening(figure: string, deltaRatio: number | null): number | null {
  if (deltaRatio === null) return null;
  return figure === "qps" || figure.endsWith("_s") ? -deltaRatio : deltaRatio;
}
