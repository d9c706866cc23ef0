// Colors of the heat map: one hue for times, blue and orange for values below and above the median. Distinguishable
// with color blindness.
import { mixColors, rgb, type Rgb, type ThemeName } from "../../lib/color";

const TIMES: Record<ThemeName, readonly string[]> = {
  light: ["#f4f8fc", "#cfe1f2", "#8fc1de", "#4191c6", "#1660a7", "#08306b"],
  dark: ["#18202b", "#1c3a5e", "#2a629c", "#4a95d6", "#93c8f2", "#eef7ff"],
};
const EXCESS: Record<ThemeName, readonly string[]> = {
  light: ["#1f5fa8", "#7fb2dc", "#f3f4f6", "#f0a04b", "#8a3b00"],
  dark: ["#8cc4fb", "#33669e", "#222833", "#b0642a", "#ffc48a"],
};
// The same colors as for an excess. Usual values differ from empty cells.
const LINKS: Record<ThemeName, readonly string[]> = {
  light: ["#1f5fa8", "#7fb2dc", "#c5ccd6", "#f0a04b", "#8a3b00"],
  dark: ["#8cc4fb", "#3d78bb", "#515c6c", "#c97a36", "#ffc48a"],
};
const STOPS = { times: TIMES, excess: EXCESS, links: LINKS };
const SHADES = 256;

function colorAlong(stops: readonly Rgb[], share: number): Rgb {
  const at = share * (stops.length - 1);
  const stop = Math.min(stops.length - 2, Math.floor(at));
  return mixColors(stops[stop] ?? [0, 0, 0], stops[stop + 1] ?? [0, 0, 0], at - stop);
}

/** Return the colors from the smallest to the largest value. */
export function colorStops(theme: ThemeName, palette: keyof typeof STOPS): Rgb[] {
  const stops = STOPS[palette][theme].map(rgb);
  return Array.from({ length: SHADES }, (_, i) => colorAlong(stops, i / (SHADES - 1)));
}

export interface Scale {
  low: number;
  high: number;
}

// Differences below this share of the typical value are noise and do not use the full color range.
const MIN_SPAN = 0.1;

/**
 * Return the values of the first and the last color. An excess has 0 in the middle. `typical`: the median, which sets
 * the minimum range.
 */
export function createScale(low: number | null, high: number | null, excess: boolean, typical = 0): Scale {
  const [min, max, span] = [low ?? 0, high ?? 0, Math.max(1, MIN_SPAN * typical)];
  if (!excess) return { low: min, high: Math.max(max, min + span) };
  const farthest = Math.max(Math.abs(min), Math.abs(max), span / 2, 1);
  return { low: -farthest, high: farthest };
}

/** Paint the RGBA values of the cells. Unknown cells are transparent. */
export function paintCell(
  cells: readonly (number | null)[],
  scale: Scale,
  stops: readonly Rgb[],
): Uint8ClampedArray<ArrayBuffer> {
  const table = new Uint32Array(
    new Uint8ClampedArray(stops.flatMap(([red, green, blue]) => [red, green, blue, 255])).buffer,
  );
  const out = new Uint32Array(cells.length);
  const per = (stops.length - 1) / (scale.high - scale.low);
  for (let i = 0; i < cells.length; i += 1) {
    const value = cells[i];
    if (typeof value !== "number") continue;
    const shade = Math.round((value - scale.low) * per);
    out[i] = table[shade < 0 ? 0 : shade >= stops.length ? stops.length - 1 : shade] ?? 0;
  }
  return new Uint8ClampedArray(out.buffer);
}
