// The positions of lanes within a row, in CSS pixels from the row's top.
import { FOLDED_LANE_PX, LANE_PX, shownLanes, type Row } from "./layout";
import type { Track } from "./model";

export interface LaneBox {
  track: Track;
  /** Lane of the track. */
  lane: number;
  top: number;
  height: number;
  /** Whether it is high enough for a label. */
  readable: boolean;
}

const FOLDED_TOP_PX = 3;
const SUMMARY_LANES = 6;

/** Return all lanes of a track or, for a folded group, the first lane of each of its tracks. */
export function laneBoxes(row: Row): LaneBox[] {
  const track = row.item?.track;
  if (track) {
    const height = row.folded ? FOLDED_LANE_PX : LANE_PX;
    const top = row.folded ? FOLDED_TOP_PX : 2;
    const gap = row.folded ? 0 : 1;
    return Array.from({ length: shownLanes(row.item as NonNullable<Row["item"]>, row.folded) }, (_, lane) => ({
      track,
      lane,
      top: top + lane * height,
      height: height - gap,
      readable: !row.folded,
    }));
  }
  if ((row.kind !== "group" && row.kind !== "worker") || !row.folded) return [];
  const tracks = row.below.flatMap((item) => item.track ?? []).slice(0, SUMMARY_LANES);
  return tracks.map((track, index) => ({
    track,
    lane: 0,
    top: FOLDED_TOP_PX + index * FOLDED_LANE_PX,
    height: FOLDED_LANE_PX,
    readable: false,
  }));
}

/** Return the position of a lane in a row. Lanes that a folded row omits share the last drawn lane. */
export function laneBox(row: Row, track: number, lane: number): LaneBox | null {
  const boxes = laneBoxes(row).filter((box) => box.track.id === track);
  return boxes[Math.min(lane, boxes.length - 1)] ?? null;
}
