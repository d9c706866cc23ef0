// One color per category and stage, the same on every page. Both themes keep the hue and change the lightness.

import type { ThemeName } from "../lib/color";

const HUES: readonly (readonly [light: string, dark: string, names: string])[] = [
  [
    "#2f74d0",
    "#5a9bf0",
    "compute kernel device_work computation work allocated parameter runs median measured step_time",
  ],
  ["#e0872b", "#f0a04f", "infer_shape memcpy wait host_wait delays launch gradient max"],
  ["#c2a414", "#dcc342", "memset temporary"],
  ["#8557c9", "#ab85e8", "node_creation graph communication comm transfer dependency optimizer_state"],
  ["#d1527a", "#ec7fa0", "runtime calls call"],
  ["#1f9d8b", "#3cc2ae", "dataloader overlap activation min feasible"],
  ["#6b9e34", "#8fc257", "cpu autograd host"],
  ["#a0a8b5", "#6d7685", "other"],
  ["#4a8fb8", "#74b4d9", "op kernel_wait queue"],
  ["#a97c50", "#cba176", "annotation"],
  ["#5f7896", "#8ea8c7", "python"],
  ["#8b7bb5", "#b3a4d8", "sync"],
  ["#b58a3a", "#d6b266", "memory"],
  ["#3d8f8f", "#6bbcbc", "module handed"],
  ["#9a6f8a", "#c49ab4", "session"],
  ["#8fb6cf", "#4f7d97", "op_part"],
  ["#7f8794", "#8d97a6", "step"],
  ["#b9493f", "#de7469", "overhead worse return"],
  ["#3f7fd6", "#6ea6f2", "forward decode"],
  ["#d9783a", "#ef9a62", "backward prefill"],
  ["#559c4b", "#7fc374", "optimizer better"],
  ["#a0a8b5", "#7b8494", "reserved doubtful unknown infeasible"],
  ["#c94f6d", "#ec7f99", "input"],
  ["#1d2430", "#e3e8ef", "limit"],
];
const CATEGORIES: Record<string, Record<ThemeName, string>> = Object.fromEntries(
  HUES.flatMap(([light, dark, names]) => names.split(" ").map((name) => [name, { light, dark }])),
);

/** Twelve hues for names without a color of their own. Adjacent hues differ in hue and lightness. */
const SERIES: Record<ThemeName, readonly string[]> = {
  light: [
    "#2f74d0",
    "#e0872b",
    "#1f9d8b",
    "#c94f6d",
    "#8557c9",
    "#7d9c2c",
    "#3aa3cf",
    "#b5651d",
    "#5b66c4",
    "#d48cb0",
    "#4d8a5b",
    "#998675",
  ],
  dark: [
    "#5a9bf0",
    "#f0a04f",
    "#3cc2ae",
    "#ec7f99",
    "#ab85e8",
    "#a5c653",
    "#62c3ea",
    "#d98f4e",
    "#8891ea",
    "#e9abca",
    "#74b583",
    "#bba998",
  ],
};

export function categoryColor(name: string, theme: ThemeName): string {
  return (CATEGORIES[name] ?? CATEGORIES["other"])?.[theme] ?? "#888";
}

export function seriesColors(theme: ThemeName): string[] {
  return [...SERIES[theme]];
}

/** Colors of a chart's lines and texts. */
export const TEXT_COLORS: Record<ThemeName, { text: string; muted: string; line: string; surface: string }> = {
  light: { text: "#1d2430", muted: "#5d6878", line: "#e1e5eb", surface: "#ffffff" },
  dark: { text: "#e3e8ef", muted: "#9aa5b4", line: "#323a46", surface: "#1b2028" },
};
