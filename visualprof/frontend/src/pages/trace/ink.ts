// The page's own colours, read from its style sheet, so that canvas and document agree in both themes.
import { rgb } from "../../lib/color";
import { packed } from "./look";

export interface Ink {
  text: string;
  muted: string;
  accent: string;
  accent_soft: string;
  ground: string;
  head: string;
  line: string;
  line_soft: string;
  mark: string;
  good: string;
  pack: (color: string) => number;
}

/** Style sheets are shortened when built: #fff for #ffffff. */
function long_hex(color: string): string {
  if (/^#[0-9a-f]{3}$/i.test(color)) return `#${[...color.slice(1)].map((digit) => digit + digit).join("")}`;
  return /^#[0-9a-f]{6}$/i.test(color) ? color : "#888888";
}

export function read_ink(): Ink {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string) => style.getPropertyValue(`--${name}`).trim() || "#888888";
  return {
    text: token("text"),
    muted: token("muted"),
    accent: token("accent"),
    accent_soft: token("accent-soft"),
    ground: token("surface"),
    head: token("head"),
    line: token("line"),
    line_soft: token("line-soft"),
    mark: token("warn"),
    good: token("good"),
    pack: (color) => packed(rgb(long_hex(color))),
  };
}
