import { describe, expect, it } from "vitest";
import type { EChartsType } from "./engine";
import { createRangeBand } from "./range-selection";

describe("the band of a selected range", () => {
  it("is not drawn on a chart that was disposed while the code was loading", async () => {
    const disposed = { isDisposed: () => true, getZr: () => null } as unknown as EChartsType;
    expect(await createRangeBand(disposed)).toBeNull();
  });

  it("follows the selection and disappears with it", async () => {
    const drawn: { invisible: boolean; shape: { x: number; width: number } }[] = [];
    const chart = {
      isDisposed: () => false,
      getZr: () => ({ add: (mark: (typeof drawn)[0]) => drawn.push(mark) }),
      getHeight: () => 100,
    } as unknown as EChartsType;
    const band = await createRangeBand(chart);
    band?.([30, 10]);
    expect(drawn[0]).toMatchObject({ invisible: false, shape: { x: 10, width: 20 } });
    band?.(null);
    expect(drawn[0]?.invisible).toBe(true);
  });
});
