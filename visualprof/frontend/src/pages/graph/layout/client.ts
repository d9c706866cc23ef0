// Sends layout requests to a worker: one worker per model; a newer request replaces an older one.
import type { GraphAnswer } from "../../../api/graph";
import type { Direction } from "./direction";
import type { Picture } from "./picture";
import type { LayoutRequest, LayoutReply } from "./worker";

export class LayoutClient {
  private readonly worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
  private readonly waiting = new Map<number, { resolve: (picture: Picture) => void; reject: (error: Error) => void }>();
  private last = 0;
  private answer: GraphAnswer | undefined;

  constructor(answer: GraphAnswer) {
    this.answer = answer;
    this.worker.onmessage = ({ data }: MessageEvent<LayoutReply>) => {
      const request = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (data.picture) request?.resolve(data.picture);
      else request?.reject(new Error(data.error ?? "layout failed"));
    };
    this.worker.onerror = (event) => {
      for (const request of this.waiting.values()) request.reject(new Error(event.message));
      this.waiting.clear();
    };
  }

  layout(open: Iterable<number>, direction: Direction): Promise<Picture> {
    this.last += 1;
    const ask: LayoutRequest = {
      id: this.last,
      open: [...open],
      direction,
      ...(this.answer ? { answer: this.answer } : {}),
    };
    this.answer = undefined;
    return new Promise((resolve, reject) => {
      this.waiting.set(ask.id, { resolve, reject });
      this.worker.postMessage(ask);
    });
  }

  close(): void {
    this.worker.terminate();
    this.waiting.clear();
  }
}
