import { beforeEach, describe, expect, it, vi } from "vitest";
import { ref } from "vue";
import { Builder, residual, transformer } from "../../../tests/samples";
import type { GraphAnswer } from "../../api/graph";
import { tipPosition, textBoxesNear } from "./canvas/tip-position";
import type { Box } from "./canvas/camera";
import { boxOf, buildScene, type Scene } from "./canvas/scene";
import { groupDifferences } from "./comparison";
import { Graph } from "./graph";
import type { Direction } from "./layout/direction";
import { NestedLayout } from "./layout/nested";
import { buildPicture } from "./layout/picture";
import { openToLevel } from "./open-groups";
import { useSideBySide } from "./side-by-side";
import { Stage } from "./stage";

function layOut(answer: GraphAnswer, direction: Direction = "td", level = 9): Scene {
  const graph = new Graph(answer);
  return buildScene(
    graph,
    buildPicture(new NestedLayout(graph).layout(openToLevel(graph, level), direction), direction),
  );
}

/** A chain; the nodes of `extra` come before the fourth. */
function chain(extra = 0): GraphAnswer {
  const b = new Builder("chain");
  let x = b.node("Input", 0, [], "x");
  for (let i = 0; i < 12; i += 1) {
    if (i === 3) for (let k = 0; k < extra; k += 1) x = b.node("Cast", 0, [x], `more${k}`);
    x = b.node("Relu", 0, [x], `relu${i}`);
  }
  return b.answer();
}

/** Return the item of the other model with the same name. */
function byName(scene: Scene, otherScene: Scene): (item: number) => number {
  return (item) => otherScene.graph.answer.nodes.name.indexOf(scene.graph.answer.nodes.name[item] ?? "?");
}

/** Pixels from the upper left corner of its area. */
function positionOnScreen(stage: Stage, item: number): { x: number; y: number } {
  const at = stage.pointOf(item);
  return at ? stage.camera.toScreen(at.x, at.y) : { x: NaN, y: NaN };
}

function sidesOf(main: Scene, second: Scene, selected = -1) {
  const [stage, other] = [new Stage("light"), new Stage("light")];
  for (const [eachStage, scene] of [
    [stage, main],
    [other, second],
  ] as const) {
    eachStage.resize(500, 700);
    eachStage.show(scene, -1);
  }
  const to = byName(main, second);
  const back = byName(second, main);
  const sides = useSideBySide(stage, other, ref(true), ref(selected), (item, ofMain) => (ofMain ? to : back)(item));
  return { stage, other, sides, to };
}

beforeEach(() => {
  vi.stubGlobal("requestAnimationFrame", () => 1);
  vi.stubGlobal("cancelAnimationFrame", () => undefined);
});

describe("two pictures side by side", () => {
  it("have one scale, and most visible boxes are level", () => {
    const { stage, other, sides, to } = sidesOf(layOut(chain()), layOut(chain(2)));
    sides.settle(true);
    expect(stage.camera.scale).toBe(other.camera.scale);
    const late = (stage.scene?.graph.answer.nodes.name ?? []).indexOf("relu9");
    expect(positionOnScreen(stage, late).y).toBeCloseTo(positionOnScreen(other, to(late)).y, 3);
    expect(positionOnScreen(stage, 0).y).not.toBeCloseTo(positionOnScreen(other, to(0)).y, 0);
  });

  it.each(["td", "lr"] as const)("of the same structure show the same part (%s)", (direction) => {
    const { stage, other, sides } = sidesOf(layOut(residual(), direction, 1), layOut(residual(), direction, 1));
    sides.settle(true);
    expect(stage.camera.view).toEqual(other.camera.view);
    sides.zoom(1.7, 100, 200);
    sides.pan(-31, 57);
    expect(stage.camera.view).toEqual(other.camera.view);
  });

  it("align the last used item on both sides, whichever side it was on", () => {
    const { stage, other, sides, to } = sidesOf(layOut(chain()), layOut(chain(5)));
    const first = 2;
    sides.settle(true);
    sides.pan(12, -40);
    const before = positionOnScreen(stage, first);
    sides.hold(first, true);
    expect(positionOnScreen(stage, first)).toEqual(before);
    expect(positionOnScreen(other, to(first)).y).toBeCloseTo(before.y, 3);
    expect(positionOnScreen(other, to(first)).x).toBeCloseTo(before.x, 3);
    const position = positionOnScreen(other, to(9));
    sides.hold(to(9), false);
    expect(positionOnScreen(other, to(9))).toEqual(position);
    expect(positionOnScreen(stage, 9).y).toBeCloseTo(position.y, 3);
  });

  it("stay at their starts if they have nothing in common", () => {
    const { stage, other, sides } = sidesOf(layOut(chain()), layOut(transformer(2)));
    sides.settle(true);
    for (const { camera } of [stage, other])
      expect([camera.y <= 0, -camera.y < camera.view.h / 2]).toEqual([true, true]);
  });

  it("keep the selection visible when they are fitted again", () => {
    const scene = layOut(residual());
    const last = scene.graph.answer.nodes.name.indexOf("head/fc");
    const { stage, other, sides } = sidesOf(scene, layOut(residual()), last);
    sides.settle(true);
    expect(positionOnScreen(stage, last).y).toBeGreaterThan(0);
    expect(positionOnScreen(stage, last).y).toBeLessThan(700);
    expect(positionOnScreen(other, last)).toEqual(positionOnScreen(stage, last));
  });
});

describe("a single picture", () => {
  it("is fitted to a new size until the user moves it", () => {
    const stage = new Stage("light");
    stage.resize(900, 700);
    stage.show(layOut(chain()), -1);
    const middle = () => (stage.camera.view.x + stage.camera.view.w / 2) / (stage.scene?.picture.width ?? 1);
    expect(middle()).toBeCloseTo(0.5, 5);
    stage.resize(400, 700);
    expect(middle()).toBeCloseTo(0.5, 5);
    stage.pan(30, 0);
    const { x } = stage.camera;
    stage.resize(600, 700);
    expect(stage.camera.x).toBe(x);
  });

  it("is centered at its start if it is wider than the area", () => {
    const stage = new Stage("light");
    stage.resize(400, 300);
    stage.show(layOut(transformer(1)), -1);
    const { picture } = stage.scene ?? layOut(chain());
    expect(picture.width * stage.camera.scale).toBeGreaterThan(400);
    const inside = [...picture.item.keys()].filter(
      (i) => !picture.open[i] && (picture.y[i] ?? 0) < stage.camera.view.y + stage.camera.view.h,
    );
    const ends = inside.flatMap((i) => [picture.x[i] ?? 0, (picture.x[i] ?? 0) + (picture.w[i] ?? 0)]);
    expect(stage.camera.view.x + stage.camera.view.w / 2).toBeCloseTo((Math.min(...ends) + Math.max(...ends)) / 2, 2);
  });
});

describe("a tooltip", () => {
  const size = { width: 180, height: 52 };
  const covers = (at: { x: number; y: number }, box: Box) =>
    at.x < box.x + box.w && box.x < at.x + size.width && at.y < box.y + box.h && box.y < at.y + size.height;

  it("is on the right of its box, inside the area, or else on the left", () => {
    const area = { width: 600, height: 400 };
    expect(tipPosition(size, [{ x: 200, y: 100, w: 100, h: 40 }], area)).toEqual({ x: 310, y: 100 });
    expect(tipPosition(size, [{ x: 480, y: 100, w: 100, h: 40 }], area)).toEqual({ x: 290, y: 100 });
    expect(tipPosition(size, [{ x: 200, y: 380, w: 100, h: 40 }], area)).toEqual({ x: 310, y: 342 });
  });

  it("covers the least text if there is no free space", () => {
    const area = { width: 200, height: 64 };
    const at = tipPosition(
      size,
      [
        { x: 10, y: 6, w: 100, h: 40 },
        { x: 120, y: 6, w: 70, h: 40 },
      ],
      area,
    );
    expect(at.x).toBeGreaterThanOrEqual(6);
    expect(at.x + size.width).toBeLessThanOrEqual(194);
  });

  it.each([
    ["residual", residual()],
    ["transformer", transformer(2)],
  ] as const)("covers no box of a %s if there is free space next to its box", (_, answer) => {
    const scene = layOut(answer);
    const stage = new Stage("light");
    stage.resize(900, 700);
    stage.show(scene, -1);
    let free = 0;
    for (let i = 0; i < scene.picture.item.length; i += 1) {
      const { x, y } = boxOf(scene, i);
      const onScreen = stage.camera.toScreen(x, y);
      if (onScreen.x < 0 || onScreen.y < 0 || onScreen.x > 800 || onScreen.y > 600) continue;
      const boxes = textBoxesNear(scene, stage.camera, i);
      const at = tipPosition(size, boxes, stage.camera);
      expect(at.x >= 0 && at.y >= 0 && at.x + size.width <= 900 && at.y + size.height <= 700).toBe(true);
      const [ownBox] = boxes;
      const points = Array.from({ length: 60 * 60 }, (_, k) => ({
        x: ownBox.x - 300 + 10 * (k % 60),
        y: ownBox.y - 200 + 7 * Math.floor(k / 60),
      }));
      const room = points.some(
        (point) =>
          point.x >= 6 &&
          point.y >= 6 &&
          point.x + size.width <= 894 &&
          point.y + size.height <= 694 &&
          !boxes.some((box) => covers(point, box)),
      );
      if (room) expect([i, ...boxes.filter((box) => covers(at, box))]).toEqual([i]);
      free += Number(room);
    }
    expect(free).toBeGreaterThanOrEqual(10);
  });
});

describe("differences", () => {
  it("are listed with their nodes", () => {
    const differences = groupDifferences({
      same: 1,
      changed: 2,
      removed: 0,
      added: 1,
      summary: {
        columns: {
          change: ["dimension", "added"],
          name: [null, null],
          dimension: [0, null],
          before: ["batch", null],
          after: ["1", "Relu"],
          nodes: [2, 1],
        },
      },
      changes: {
        columns: {
          kind: [0, 0, 1],
          node: [3, 4, null],
          other: [3, 5, 6],
          type: ["Conv", "Relu", "Relu"],
          name: ["a", "b", "c"],
          what: ["x", "y", ""],
        },
      },
    });
    expect(differences.map(({ status, dimension, nodes }) => [status, dimension, nodes])).toEqual([
      ["changed", 0, 2],
      ["added", null, 1],
    ]);
    expect(differences[0]?.changes.map(({ node, other }) => [node, other])).toEqual([
      [3, 3],
      [4, 5],
    ]);
    expect(differences[1]?.changes).toEqual([{ node: -1, other: 6, type: "Relu", name: "c", what: "" }]);
  });
});
