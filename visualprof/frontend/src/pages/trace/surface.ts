// What everything above the slices is drawn on.
import type { ThemeName } from "../../lib/color";
import type { Ink } from "./colors";
import type { Layout } from "./layout";
import type { Look } from "./slice-style";
import type { Scene } from "./scene";

export interface Surface {
  context: CanvasRenderingContext2D;
  scene: Scene;
  layout: Layout;
  scroll: number;
  ink: Ink;
  look: Look;
  theme: ThemeName;
}
