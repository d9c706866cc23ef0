// Colors of entries: a hue per category, a shade per name, paler for merged entries, dimmed for names that a search
// excludes.
import { mixColors, rgb, type Rgb, type ThemeName } from "../../lib/color";
import { categoryColor, TEXT_COLORS } from "../../charts/palette";
import type { EventNames } from "./event-names";
import type { SliceTile } from "./tile";

const SHADES = 12;

/** Bytes in the order of ImageData on a little-endian machine. */
export function packColor([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Similar name numbers get very different shades. */
function nameShade(name: number): number {
  return Math.imul(name + 1, 0x9e3779b1) >>> 0;
}

function luminance([red, green, blue]: Rgb): number {
  return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
}

/** Return the shade: slightly lighter or darker, warmer or colder. */
function shadeColor(color: Rgb, shade: number): Rgb {
  const light = ((shade % 4) - 1.5) * 0.075;
  const warm = (Math.floor(shade / 4) - 1) * 13;
  const lit = mixColors(color, light > 0 ? [255, 255, 255] : [0, 0, 0], Math.abs(light));
  const bounded = (value: number) => Math.max(0, Math.min(255, Math.round(value)));
  return [bounded(lit[0] + warm), bounded(lit[1] - Math.abs(warm) * 0.2), bounded(lit[2] - warm)];
}

let looks = 0;

/** All colors of one style. A new one is created when theme, search or loaded names change the colors. */
export class SliceStyle {
  readonly id = (looks += 1);
  readonly solid: Uint32Array;
  readonly muted: Uint32Array;
  private readonly dim: Uint32Array;
  /** Whether text on a color is light. */
  readonly lightText: readonly boolean[];

  constructor(
    categories: readonly string[],
    theme: ThemeName,
    /** During a search, entries of other names are dimmed. */
    private readonly names: EventNames | null,
  ) {
    const ground = rgb(TEXT_COLORS[theme].surface);
    const colors = categories.flatMap((category) => {
      const color = rgb(categoryColor(category, theme));
      return Array.from({ length: SHADES }, (_, shade) => shadeColor(color, shade));
    });
    this.solid = Uint32Array.from(colors, packColor);
    this.muted = Uint32Array.from(colors, (color) => packColor(mixColors(color, ground, 0.4)));
    this.dim = Uint32Array.from(colors, (color) =>
      packColor(mixColors(mixColors(color, [128, 128, 128], 0.5), ground, 0.78)),
    );
    this.lightText = colors.map((color) => luminance(color) < 0.6);
  }

  colorIndex(category: number, name: number): number {
    return category * SHADES + (nameShade(name) % SHADES);
  }

  /** Compute a tile's colors unless it already has those of this style. */
  apply(tile: SliceTile): void {
    if (tile.paint?.look === this.id) return;
    const n = tile.start.length;
    const solid = tile.paint?.solid ?? new Uint32Array(n);
    const muted = tile.paint?.muted ?? new Uint32Array(n);
    for (let i = 0; i < n; i += 1) {
      const name = tile.name[i] ?? 0;
      const color = this.colorIndex(tile.category[i] ?? 0, name);
      const dim = this.names !== null && !this.names.matches(name);
      solid[i] = (dim ? this.dim : this.solid)[color] ?? 0;
      muted[i] = (tile.count[i] ?? 0) > 1 && !dim ? (this.muted[color] ?? 0) : (solid[i] ?? 0);
    }
    tile.paint = { look: this.id, solid, muted };
  }
}
