import { expect, test } from "vitest";
import { colorPoints, normalize, placePoints, pointAt, START } from "./points";

const size = { width: 200, height: 100 };
const flat = { ...START, yaw: 0, pitch: 0 };

test("coordinates keep their proportions; points without a position stay so", () => {
  const [x, y] = normalize([
    [0, 10, null],
    [1, 2, null],
  ]);
  expect([...(x ?? [])]).toEqual([-1, 1, Number.NaN]);
  expect(y?.[0]).toBeCloseTo(-0.1);
});

test("points are around the middle, larger values are higher", () => {
  const placed = placePoints([new Float32Array([0, 1, Number.NaN]), new Float32Array([0, 1, Number.NaN])], flat, size);
  expect([...placed.order]).toEqual([0, 1]);
  expect([placed.x[0], placed.y[0]]).toEqual([100, 50]);
  expect(placed.x[1]).toBeCloseTo(144);
  expect(placed.y[1]).toBeCloseTo(6);
  expect(pointAt(placed, { x: 140, y: 8 })).toBe(1);
  expect(pointAt(placed, { x: 20, y: 90 })).toBeNull();
});

test("a quarter turn shows the third axis; near points are in front and larger", () => {
  const points = [new Float32Array([0, 0]), new Float32Array([0, 0]), new Float32Array([-1, 1])];
  const front = placePoints(points, flat, size);
  expect([...front.order]).toEqual([0, 1]);
  expect(front.scale[1]).toBeGreaterThan(front.scale[0] ?? 0);
  const turned = placePoints(points, { ...flat, yaw: Math.PI / 2 }, size);
  expect(turned.x[1]).toBeCloseTo(144);
});

test("labels have colors of their own, many numbers have a scale", () => {
  const classes = colorPoints(["b", "a", "b"], 3, "light");
  expect(classes.legend.map(({ text }) => text)).toEqual(["a", "b"]);
  expect(classes.colors[0]).toBe(classes.colors[2]);
  expect(classes.colors[0]).not.toBe(classes.colors[1]);
  const numbers = colorPoints(
    Array.from({ length: 20 }, (_, i) => String(i)),
    20,
    "light",
  );
  expect(numbers.legend.map(({ text }) => text)).toEqual(["0", "19"]);
  expect(colorPoints(null, 2, "dark").colors).toHaveLength(2);
});
