import { expect, it } from "vitest";
import { sliceTile } from "../../../tests/made-tiles";
import { rasterize } from "./software-renderer";

it("paints a lane over its whole height, between its bounds, and nothing below", () => {
  const tile = sliceTile([{ start: 2, end: 5 }]);
  tile.paint = { look: 0, solid: Uint32Array.of(9), muted: Uint32Array.of(9) };
  const part = { tile, scale: 1, offset: 0, clip0: 0, clip1: 8 };
  const pixels = new Uint32Array(8 * 6);
  rasterize(pixels, {
    width: 8,
    height: 6,
    ground: 1,
    columns: [{ x: 7, width: 1, color: 2 }],
    bands: [{ y: 5, height: 1, color: 3 }],
    strips: [{ y: 0, height: 4, lane: 0, parts: [part], top: 1, bottom: 6 }],
  });
  const rows = Array.from({ length: 6 }, (_, y) => [...pixels.slice(8 * y, 8 * y + 8)].join(""));
  expect(rows).toEqual(["11111112", "11999112", "11999112", "11999112", "11111112", "33333333"]);
});
