// One picture, or two side by side that move together: at the same scale, with counterparts at the same position.
import type { Ref } from "vue";
import { boxOf, type Scene } from "./canvas/scene";
import type { Box } from "./canvas/camera";
import { TOP_DOWN } from "./layout/direction";
import type { Stage } from "./stage";

export type SideBySide = ReturnType<typeof useSideBySide>;

/** Return the counterpart of an item in the other picture, or -1. */
export type Partner = (item: number) => number;

function inSight(box: Box, view: Box): boolean {
  return box.x < view.x + view.w && box.x + box.w > view.x && box.y < view.y + view.h && box.y + box.h > view.y;
}

/**
 * Return how much further down (or right) the visible boxes are in the other picture, as the median; null if most have
 * no counterpart there.
 */
export function counterpartShift(scene: Scene, otherScene: Scene, view: Box, partner: Partner): number | null {
  const down = scene.picture.direction === TOP_DOWN;
  const shifts: number[] = [];
  let visibleArea = 0;
  scene.picture.item.forEach((item, i) => {
    const box = boxOf(scene, i);
    if (scene.picture.open[i] || !inSight(box, view)) return;
    visibleArea += 1;
    const boxIndex = otherScene.boxIndex[partner(item)] ?? -1;
    if (boxIndex < 0) return;
    const other = boxOf(otherScene, boxIndex);
    shifts.push(down ? other.y - box.y : other.x - box.x);
  });
  return 2 * shifts.length > visibleArea ? (shifts.sort((a, b) => a - b)[shifts.length >> 1] ?? null) : null;
}

export function useSideBySide(
  stage: Stage,
  otherStage: Stage,
  comparing: Ref<boolean>,
  selected: Ref<number>,
  partner: (item: number, ofMain: boolean) => number,
) {
  /** The item that was used last. It keeps its position, and its counterpart is aligned with it. */
  let anchor: { item: number; ofMain: boolean } | null = null;

  function forBoth(act: (target: Stage) => void): void {
    for (const target of comparing.value ? [stage, otherStage] : [stage]) act(target);
  }

  /**
   * Fit both from their start, or as a whole. The longer picture leads; the other one is moved so that most visible
   * boxes are level.
   */
  function fit(wholeGraph = false): void {
    anchor = null;
    forBoth((target) => target.fit(wholeGraph ? target.wholeScale : undefined));
    if (!comparing.value || !stage.scene || !otherStage.scene) return;
    const scale = Math.min(stage.camera.scale, otherStage.camera.scale);
    forBoth((target) => target.fit(scale));
    const down = stage.scene.picture.direction === TOP_DOWN;
    const length = ({ picture }: Scene) => (down ? picture.height : picture.width);
    const ofMain = length(stage.scene) >= length(otherStage.scene);
    const [lead, follower] = ofMain ? [stage, otherStage] : [otherStage, stage];
    const shift =
      lead.scene && follower.scene
        ? counterpartShift(lead.scene, follower.scene, lead.camera.view, (item) => partner(item, ofMain))
        : null;
    if (shift === null) return;
    if (down) follower.camera.y = lead.camera.y + shift;
    else follower.camera.x = lead.camera.x + shift;
  }

  function align(): void {
    if (!anchor || !comparing.value) return;
    const [lead, follower] = anchor.ofMain ? [stage, otherStage] : [otherStage, stage];
    const [at, followerPoint] = [lead.pointOf(anchor.item), follower.pointOf(partner(anchor.item, anchor.ofMain))];
    if (at && followerPoint) follower.alignWith(lead, at, followerPoint);
  }

  /** Align with this item from now on. */
  function holdItem(item: number, ofMain: boolean): void {
    anchor = item >= 0 ? { item, ofMain } : null;
    align();
  }

  /** A picture is new or its area was resized: the selection stays visible. */
  function settleBoth(refit: boolean): void {
    if (!refit) return align();
    if (comparing.value) fit();
    if (selected.value < 0) return;
    stage.reveal(selected.value);
    holdItem(selected.value, true);
  }

  return {
    fit,
    hold: holdItem,
    settle: settleBoth,
    pan: (dx: number, dy: number) => forBoth((target) => target.pan(dx, dy)),
    zoom: (factor: number, px?: number, py?: number) => forBoth((target) => target.zoom(factor, px, py)),
  };
}
