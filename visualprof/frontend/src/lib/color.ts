export type ThemeName = "light" | "dark";
export type Rgb = readonly [red: number, green: number, blue: number];

export function rgb(hex: string): Rgb {
  const value = parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

export function mixColors(a: Rgb, b: Rgb, share: number): Rgb {
  const mix = (x: number, y: number) => Math.round(x + (y - x) * share);
  return [mix(a[0], b[0]), mix(a[1], b[1]), mix(a[2], b[2])];
}

export function hex(color: Rgb): string {
  return `#${color.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
