// What the overlay is drawn on.
import type { ThemeName } from "../../lib/color";
import type { TimelineColors } from "./colors";
import type { Layout } from "./layout";
import type { SliceStyle } from "./slice-style";
import type { Scene } from "./scene";

export interface Surface {
  context: CanvasRenderingContext2D;
  scene: Scene;
  layout: Layout;
  scroll: number;
  colors: TimelineColors;
  style: SliceStyle;
  theme: ThemeName;
}
