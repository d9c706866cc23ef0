import { describe, expect, it } from "vitest";
import { Camera, SHORTEST_NS } from "./camera";

function camera(): Camera {
  const camera = new Camera();
  camera.setExtent(0, 1_000_000);
  camera.set(100_000, 300_000);
  return camera;
}

describe("camera", () => {
  it("zooms around a point that keeps its position", () => {
    const view = camera();
    view.zoom(150_000, 0.5);
    expect([view.start, view.end]).toEqual([125_000, 225_000]);
    view.zoom(150_000, 2);
    expect([view.start, view.end]).toEqual([100_000, 300_000]);
  });

  it("goes neither far beyond the trace nor below the shortest window", () => {
    const view = camera();
    view.zoom(150_000, 1e9);
    expect(view.isWhole).toBe(true);
    view.pan(1e9);
    expect(view.end).toBe(view.whole.end);
    view.zoom(500_000, 1e-12);
    expect(view.span).toBeCloseTo(SHORTEST_NS);
  });

  it("moves only as far as needed to show a range", () => {
    const view = camera();
    view.reveal({ start: 150_000, end: 160_000 });
    expect([view.start, view.end]).toEqual([100_000, 300_000]);
    view.reveal({ start: 600_000, end: 602_000 });
    expect([view.start, view.end]).toEqual([501_000, 701_000]);
    view.reveal({ start: 0, end: 900_000 });
    expect(view.span).toBeGreaterThan(900_000);
  });

  it("zooms in on a range that is too thin", () => {
    const view = camera();
    view.reveal({ start: 150_000, end: 150_100 });
    expect([view.start, view.end]).toEqual([149_000, 151_100]);
  });

  it("restores a window exactly", () => {
    const view = camera();
    view.restore(123_457, 123_999);
    expect([view.start, view.end]).toEqual([123_457, 123_999]);
  });
});
