// A chart as a file, drawn again off screen with its title and a solid background, in a size for documents.
import type { JsonObject } from "../api/model";
import { downloadFile } from "../lib/download";
import type { Context } from "./theme";
import { chartOption } from "./options";
import { TEXT_COLORS } from "./palette";

const WIDTH = 960;
const HEIGHT = 420;
const TITLE_HEIGHT = 36;

export type ImageFormat = "png" | "svg";

export async function saveChartImage(
  kind: ImageFormat,
  name: string,
  title: string,
  server: JsonObject,
  context: Context,
): Promise<void> {
  const init = await (await import("./engine")).loadEngine(true, false);
  const ink = TEXT_COLORS[context.theme];
  const holder = document.createElement("div");
  const chart = init(holder, null, {
    renderer: kind === "svg" ? "svg" : "canvas",
    ssr: kind === "svg",
    width: WIDTH,
    height: HEIGHT,
    devicePixelRatio: 2,
  });
  const option = chartOption(server, { ...context, width: WIDTH });
  const grid = option["grid"];
  if (typeof grid === "object" && grid !== null && "top" in grid) grid["top"] = Number(grid["top"]) + TITLE_HEIGHT;
  const legend = option["legend"];
  if (typeof legend === "object" && legend !== null && "top" in legend && legend["top"] === 0)
    legend["top"] = TITLE_HEIGHT;
  chart.setOption({
    ...option,
    backgroundColor: ink.surface,
    title: { text: title, left: 12, top: 8, textStyle: { color: ink.text, fontSize: 15 } },
  });
  downloadFile(
    kind === "svg"
      ? new Blob([chart.renderToSVGString()], { type: "image/svg+xml" })
      : chart.getDataURL({ pixelRatio: 2 }),
    `${name}.${kind}`,
  );
  chart.dispose();
}
