import { describe, expect, it } from "vitest";
import { styleBand, bandOutline, contiguousRuns } from "./band";

describe("a band", () => {
  const rows = [
    [1, 9, 11],
    [2, 18, 22],
    [4, null, null],
    [8, 70, 90],
    [16, null, null],
    [32, 0, 300],
    [64, 500, 700],
  ] as const;

  it("breaks at unknown ends, and has no area for a single row", () => {
    expect(contiguousRuns(rows).map((run) => run.map(([x]) => x))).toEqual([
      [1, 2],
      [32, 64],
    ]);
  });

  it("follows the upper ends and returns along the lower ones; 0 on a logarithmic axis is at its floor", () => {
    const toPixel = (x: number, y: number) => [x, -Math.log10(y)] as const;
    expect(bandOutline(rows.slice(5), toPixel, 99)).toEqual([
      [32, -Math.log10(300)],
      [64, -Math.log10(700)],
      [64, -Math.log10(500)],
      [32, 99],
    ]);
  });

  it("is drawn once, in the color of its series", () => {
    const draw = styleBand({ type: "custom", data: rows as never })["renderItem"] as unknown as (
      frame: object,
      api: object,
    ) => { children: { style: { fill: string } }[] } | null;
    const api = { coord: (point: readonly number[]) => point, visual: () => "red" };
    const frame = (dataIndexInside: number) => ({ dataIndexInside, coordSys: { y: 0, height: 9 } });
    expect(draw(frame(0), api)?.children.map((child) => child.style.fill)).toEqual(["red", "red"]);
    expect(draw(frame(1), api)).toBeNull();
  });
});
