/** By how much a figure of an evaluation got worse, below 0 better; latencies are better small, rates large. */
export function worsened(figure: string, delta_ratio: number | null): number | null {
  if (delta_ratio === null) return null;
  return figure === "qps" || figure.endsWith("_s") ? -delta_ratio : delta_ratio;
}
