import { expect, it } from "vitest";
import { worsened } from "./metric-change";

it("more latency is worse, more throughput is better, and nothing is known of what one side lacks", () => {
  expect([
    worsened("p99", 0.2),
    worsened("mean", -0.1),
    worsened("samples_per_s", 0.2),
    worsened("qps", -0.1),
    worsened("p50", null),
  ]).toEqual([0.2, -0.1, -0.2, 0.1, null]);
});
