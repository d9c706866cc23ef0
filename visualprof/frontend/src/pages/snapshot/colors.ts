// One color per category of memory. Categories that share a hue on other pages get different ones here.
import { categoryColor } from "../../charts/palette";
import type { ThemeName } from "../../lib/color";

const HUES: Readonly<Record<string, string>> = {
  before_history: "python",
  communication: "op",
  graph: "annotation",
};

export function roleColor(role: string, theme: ThemeName): string {
  return categoryColor(HUES[role] ?? role, theme);
}
