// Lays out one model in a web worker.
import type { GraphAnswer } from "../../../api/graph";
import { Graph } from "../graph";
import type { Direction } from "./direction";
import { NestedLayout } from "./nested";
import { buildPicture, type Picture } from "./picture";

export interface LayoutRequest {
  id: number;
  /** Sent once, first. */
  answer?: GraphAnswer;
  open: number[];
  direction: Direction;
}

export interface LayoutReply {
  id: number;
  picture?: Picture;
  error?: string;
}

let nested: NestedLayout | null = null;

self.onmessage = ({ data }: MessageEvent<LayoutRequest>) => {
  const post = self.postMessage as (message: LayoutReply, transfer?: Transferable[]) => void;
  try {
    if (data.answer) nested = new NestedLayout(new Graph(data.answer));
    if (!nested) throw new Error("no model");
    const picture = buildPicture(nested.layout(new Set(data.open), data.direction), data.direction);
    const transfer = Object.values(picture).flatMap((value) =>
      ArrayBuffer.isView(value) ? [value.buffer as ArrayBuffer] : [],
    );
    post({ id: data.id, picture }, transfer);
  } catch (error) {
    post({ id: data.id, error: String(error) });
  }
};
