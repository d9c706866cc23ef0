// Export of the window: Chrome JSON from the server, and an image of the screen.
import { address, fetchApi } from "../../api/client";
import { downloadFile, downloadCanvas } from "../../lib/download";
import type { Range } from "./model";
import type { Stage } from "./stage";
import type { Timeline } from "./timeline";

const HEAD_FONT = "12px system-ui, sans-serif";

/** Throws `ApiError`: the server rejects a window with too many events and states the reason. */
export async function saveJson({ main }: Timeline, range: Range): Promise<void> {
  const source = main.value;
  if (!source) return;
  const url = address("timeline/export", {
    ...source.id.query,
    start_ns: Math.floor(range.start - source.offset),
    end_ns: Math.ceil(range.end - source.offset),
  });
  downloadFile(await (await fetchApi(url)).blob(), `${source.id.name}.window.trace.json`);
}

/** Draw the time axis, names and tracks as on the screen. */
export async function savePng(stage: Stage, ruler: HTMLCanvasElement, headPx: number, name: string): Promise<void> {
  const { scene, layers, colorsFor: inks } = stage;
  if (!scene) return;
  const { ratio } = scene;
  const canvas = document.createElement("canvas");
  canvas.width = scene.width + headPx * ratio;
  canvas.height = scene.height + ruler.height;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(ruler, headPx * ratio, 0);
  for (const layer of layers) context.drawImage(layer, headPx * ratio, ruler.height);
  context.setTransform(ratio, 0, 0, ratio, 0, ruler.height);
  context.font = HEAD_FONT;
  context.textBaseline = "top";
  for (const { row, y, top } of scene.rows) {
    if (y < top - 4) continue;
    context.save();
    context.beginPath();
    context.rect(0, y, headPx - 6, row.height);
    context.clip();
    context.fillStyle = row.item ? inks.text : inks.muted;
    context.fillText(row.label, row.item ? 14 : 6, y + 5);
    context.restore();
  }
  await downloadCanvas(canvas, `${name}.png`);
}
