/** Return whether a metric is a rate; the others are times. */
export function isRate(figure: string): boolean {
  return figure === "qps" || figure.endsWith("_s");
}

/** Return how much worse a metric became, negative if better. Lower is better for latencies, higher for rates. */
export function relativeWorsening(figure: string, deltaRatio: number | null): number | null {
  if (deltaRatio === null) return null;
  return isRate(figure) ? -deltaRatio : deltaRatio;
}
