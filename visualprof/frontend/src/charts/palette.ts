// One colour per category and stage, the same on every page; both themes keep the hue and shift the lightness.

import type { ThemeName } from "../lib/color";

const CATEGORIES: Record<string, readonly [light: string, dark: string]> = {
  kernel: ["#2f74d0", "#5a9bf0"],
  device_work: ["#2f74d0", "#5a9bf0"],
  memcpy: ["#e0872b", "#f0a04f"],
  memset: ["#c2a414", "#dcc342"],
  communication: ["#8557c9", "#ab85e8"],
  comm: ["#8557c9", "#ab85e8"],
  runtime: ["#d1527a", "#ec7fa0"],
  dataloader: ["#1f9d8b", "#3cc2ae"],
  cpu: ["#6b9e34", "#8fc257"],
  other: ["#a0a8b5", "#6d7685"],
  op: ["#4a8fb8", "#74b4d9"],
  annotation: ["#a97c50", "#cba176"],
  python: ["#5f7896", "#8ea8c7"],
  sync: ["#8b7bb5", "#b3a4d8"],
  memory: ["#b58a3a", "#d6b266"],
  module: ["#3d8f8f", "#6bbcbc"],
  session: ["#9a6f8a", "#c49ab4"],
  op_part: ["#8fb6cf", "#4f7d97"],
  step: ["#7f8794", "#8d97a6"],
  overhead: ["#b9493f", "#de7469"],
  forward: ["#3f7fd6", "#6ea6f2"],
  backward: ["#d9783a", "#ef9a62"],
  optimizer: ["#559c4b", "#7fc374"],
  computation: ["#2f74d0", "#5a9bf0"],
  overlap: ["#1f9d8b", "#3cc2ae"],
  transfer: ["#8557c9", "#ab85e8"],
  wait: ["#e0872b", "#f0a04f"],
  allocated: ["#2f74d0", "#5a9bf0"],
  reserved: ["#a0a8b5", "#7b8494"],
  parameter: ["#2f74d0", "#5a9bf0"],
  gradient: ["#e0872b", "#f0a04f"],
  activation: ["#1f9d8b", "#3cc2ae"],
  optimizer_state: ["#8557c9", "#ab85e8"],
  input: ["#c94f6d", "#ec7f99"],
  temporary: ["#c2a414", "#dcc342"],
  autograd: ["#6b9e34", "#8fc257"],
  runs: ["#2f74d0", "#5a9bf0"],
  median: ["#2f74d0", "#5a9bf0"],
  max: ["#e0872b", "#f0a04f"],
  limit: ["#1d2430", "#e3e8ef"],
  min: ["#1f9d8b", "#3cc2ae"],
};

/** Twelve hues for names that have no colour of their own; neighbours differ in hue and in lightness. */
const SERIES: Record<ThemeName, readonly string[]> = {
  light: ["#2f74d0", "#e0872b", "#1f9d8b", "#c94f6d", "#8557c9", "#7d9c2c", "#3aa3cf", "#b5651d", "#5b66c4", "#d48cb0", "#4d8a5b", "#998675"],
  dark: ["#5a9bf0", "#f0a04f", "#3cc2ae", "#ec7f99", "#ab85e8", "#a5c653", "#62c3ea", "#d98f4e", "#8891ea", "#e9abca", "#74b583", "#bba998"],
};

export function category_color(name: string, theme: ThemeName): string {
  const pair = CATEGORIES[name] ?? CATEGORIES["other"];
  return pair ? pair[theme === "light" ? 0 : 1] : "#888";
}

export function series_colors(theme: ThemeName): string[] {
  return [...SERIES[theme]];
}

/** The lines and words of a chart. */
export const INK: Record<ThemeName, { text: string; muted: string; line: string; surface: string }> = {
  light: { text: "#1d2430", muted: "#5d6878", line: "#e1e5eb", surface: "#ffffff" },
  dark: { text: "#e3e8ef", muted: "#9aa5b4", line: "#323a46", surface: "#1b2028" },
};
