// All colors of the picture, read from the CSS variables, so that canvas and document match in both themes.
import type { ChangeStatus } from "../../../api/graph";
import { hex, mixColors, rgb, type ThemeName } from "../../../lib/color";
import { FAMILIES, familyColor, type Family } from "./operator-family";

export interface Colors {
  theme: ThemeName;
  ground: string;
  surface: string;
  text: string;
  muted: string;
  line: string;
  edge: string;
  accent: string;
  upstream: string;
  downstream: string;
  mark: string;
  group: readonly string[];
  title: readonly string[];
  family: Record<Family, { fill: string; border: string; strong: string }>;
  status: Record<ChangeStatus, string>;
  heat: (share: number) => string;
  /** From -1 (less than the base) to 1. */
  change: (share: number) => string;
}

const mix = (a: string, b: string, share: number) => hex(mixColors(rgb(a), rgb(b), share));

const TOKENS: Record<ThemeName, Record<string, string>> = {
  light: {
    ground: "#f3f5f8",
    surface: "#ffffff",
    text: "#1d2430",
    muted: "#5d6878",
    line: "#cfd6df",
    accent: "#1f63c6",
    good: "#2f855a",
    warn: "#c77a08",
    bad: "#c0392f",
  },
  dark: {
    ground: "#12161c",
    surface: "#1b2028",
    text: "#e3e8ef",
    muted: "#9aa5b4",
    line: "#3d4654",
    accent: "#74abf5",
    good: "#6cc495",
    warn: "#e9b35c",
    bad: "#f08a80",
  },
};
const COLD: Record<ThemeName, string> = { light: "#fdf6ec", dark: "#2a2a2c" };
const WARM: Record<ThemeName, string> = { light: "#f7a94a", dark: "#a86a24" };
// Text is drawn on it: contrast of at least 4.5 : 1 in both themes.
const HOT: Record<ThemeName, string> = { light: "#e8654f", dark: "#b93a28" };

// Blue and orange are distinguishable for everyone; signs and arrows show the same.
const NEUTRAL: Record<ThemeName, string> = { light: "#f4f5f7", dark: "#2a2d33" };
const DECREASE: Record<ThemeName, string> = { light: "#6fa8ee", dark: "#2a5d9c" };

export function readColors(theme: ThemeName): Colors {
  const token = (name: string) => TOKENS[theme][name] ?? "#888888";
  const [ground, surface, line] = [token("ground"), token("surface"), token("line")];
  const family = Object.fromEntries(
    FAMILIES.map((name) => {
      const strong = familyColor(name, theme);
      return [
        name,
        {
          strong,
          fill: mix(surface, strong, theme === "light" ? 0.13 : 0.2),
          border: mix(surface, strong, theme === "light" ? 0.55 : 0.62),
        },
      ];
    }),
  ) as Colors["family"];
  return {
    theme,
    ground,
    surface,
    line,
    text: token("text"),
    muted: token("muted"),
    edge: mix(surface, token("muted"), 0.66),
    accent: token("accent"),
    upstream: token("accent"),
    downstream: token("warn"),
    mark: token("warn"),
    // Each level of nested groups differs slightly from the background.
    group: [0, 1, 2, 3].map((depth) => mix(surface, token("muted"), (theme === "light" ? 0.05 : 0.06) * (depth + 1))),
    title: [0, 1, 2, 3].map((depth) => mix(surface, token("muted"), 0.09 + 0.06 * (depth + 1))),
    family,
    status: { same: token("muted"), changed: token("warn"), removed: token("bad"), added: token("good") },
    heat: (share) =>
      share < 0.5 ? mix(COLD[theme], WARM[theme], share * 2) : mix(WARM[theme], HOT[theme], share * 2 - 1),
    change: (share) => mix(NEUTRAL[theme], (share < 0 ? DECREASE : WARM)[theme], Math.abs(share)),
  };
}
