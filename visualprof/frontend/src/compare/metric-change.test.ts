import { expect, it } from "vitest";
import { relativeWorsening } from "./metric-change";

it("higher latency is worse, higher throughput is better, and a missing side gives null", () => {
  expect([
    relativeWorsening("p99", 0.2),
    relativeWorsening("mean", -0.1),
    relativeWorsening("samples_per_s", 0.2),
    relativeWorsening("qps", -0.1),
    relativeWorsening("output_tokens_per_s", -0.3),
    relativeWorsening("ttft_p99", 0.4),
    relativeWorsening("p50", null),
  ]).toEqual([0.2, -0.1, -0.2, 0.1, 0.3, 0.4, null]);
});
