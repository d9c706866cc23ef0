// The timeline's colors, read from the CSS variables, so that canvas and document match in both themes.
import { rgb } from "../../lib/color";
import { packColor } from "./slice-style";

export interface TimelineColors {
  text: string;
  muted: string;
  accent: string;
  accentSoft: string;
  ground: string;
  head: string;
  line: string;
  lineSoft: string;
  mark: string;
  good: string;
  pack: (color: string) => number;
}

/** Expand #fff, to which the build shortens #ffffff. */
function toLongHex(color: string): string {
  if (/^#[0-9a-f]{3}$/i.test(color)) return `#${[...color.slice(1)].map((digit) => digit + digit).join("")}`;
  return /^#[0-9a-f]{6}$/i.test(color) ? color : "#888888";
}

export function readColors(): TimelineColors {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string) => style.getPropertyValue(`--${name}`).trim() || "#888888";
  return {
    text: token("text"),
    muted: token("muted"),
    accent: token("accent"),
    accentSoft: token("accent-soft"),
    ground: token("surface"),
    head: token("head"),
    line: token("line"),
    lineSoft: token("line-soft"),
    mark: token("warn"),
    good: token("good"),
    pack: (color) => packColor(rgb(toLongHex(color))),
  };
}
