// A pen that writes SVG. Texts are escaped, because names of a model may contain markup.
import { escapeHtml } from "../../../lib/text";
import type { Pen } from "./pen";

const ANCHORS: Record<string, string> = { left: "start", start: "start", center: "middle", right: "end", end: "end" };

function roundCoordinate(value: number): string {
  return String(Math.round(value * 100) / 100);
}

export class SvgPen implements Pen {
  fillStyle: string | CanvasGradient | CanvasPattern = "#000";
  strokeStyle: string | CanvasGradient | CanvasPattern = "#000";
  lineWidth = 1;
  font = "12px sans-serif";
  textAlign: CanvasTextAlign = "left";
  textBaseline: CanvasTextBaseline = "alphabetic";
  globalAlpha = 1;
  private path: string[] = [];
  private dash: number[] = [];
  private readonly out: string[] = [];

  private get alpha(): string {
    return this.globalAlpha < 1 ? ` opacity="${roundCoordinate(this.globalAlpha)}"` : "";
  }

  beginPath(): void {
    this.path = [];
  }

  moveTo(x: number, y: number): void {
    this.path.push(`M${roundCoordinate(x)} ${roundCoordinate(y)}`);
  }

  lineTo(x: number, y: number): void {
    this.path.push(`L${roundCoordinate(x)} ${roundCoordinate(y)}`);
  }

  bezierCurveTo(x1: number, y1: number, x2: number, y2: number, x: number, y: number): void {
    this.path.push(`C${[x1, y1, x2, y2, x, y].map(roundCoordinate).join(" ")}`);
  }

  closePath(): void {
    this.path.push("Z");
  }

  rect(x: number, y: number, w: number, h: number): void {
    this.path.push(
      `M${roundCoordinate(x)} ${roundCoordinate(y)}h${roundCoordinate(w)}v${roundCoordinate(h)}h${roundCoordinate(-w)}Z`,
    );
  }

  roundRect(
    x: number,
    y: number,
    w: number,
    h: number,
    radii?: number | DOMPointInit | Iterable<number | DOMPointInit>,
  ): void {
    const list = typeof radii === "object" && Symbol.iterator in radii ? [...radii].map(Number) : [Number(radii ?? 0)];
    const [a = 0, b = a, c = a, d = b] = list.map((radius) => Math.min(radius, w / 2, h / 2));
    const arc = (radius: number, dx: number, dy: number) =>
      radius > 0
        ? `a${roundCoordinate(radius)} ${roundCoordinate(radius)} 0 0 1 ${roundCoordinate(dx)} ${roundCoordinate(dy)}`
        : "";
    this.path.push(
      `M${roundCoordinate(x + a)} ${roundCoordinate(y)}h${roundCoordinate(w - a - b)}${arc(b, b, b)}v${roundCoordinate(h - b - c)}${arc(c, -c, c)}h${roundCoordinate(c + d - w)}${arc(d, -d, -d)}v${roundCoordinate(d + a - h)}${arc(a, a, -a)}Z`,
    );
  }

  setLineDash(dash: Iterable<number>): void {
    this.dash = [...dash];
  }

  fill(): void {
    if (this.path.length > 0)
      this.out.push(`<path d="${this.path.join("")}" fill="${String(this.fillStyle)}"${this.alpha}/>`);
  }

  stroke(): void {
    if (this.path.length === 0) return;
    const dash = this.dash.length > 0 ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    this.out.push(
      `<path d="${this.path.join("")}" fill="none" stroke="${String(this.strokeStyle)}" stroke-width="${roundCoordinate(this.lineWidth)}"${dash}${this.alpha}/>`,
    );
  }

  fillRect(x: number, y: number, w: number, h: number): void {
    this.out.push(
      `<rect x="${roundCoordinate(x)}" y="${roundCoordinate(y)}" width="${roundCoordinate(w)}" height="${roundCoordinate(h)}" fill="${String(this.fillStyle)}"${this.alpha}/>`,
    );
  }

  fillText(text: string, x: number, y: number): void {
    const [, weight = "400", size = "12", family = "sans-serif"] = /^(\d+) ([\d.]+)px (.*)$/.exec(this.font) ?? [];
    const middle = this.textBaseline === "middle" ? ' dominant-baseline="central"' : "";
    this.out.push(
      `<text x="${roundCoordinate(x)}" y="${roundCoordinate(y)}" text-anchor="${ANCHORS[this.textAlign] ?? "start"}"${middle} font-size="${size}" font-weight="${weight}" font-family="${escapeHtml(family)}" fill="${String(this.fillStyle)}"${this.alpha}>${escapeHtml(text)}</text>`,
    );
  }

  document(x: number, y: number, width: number, height: number, ground: string, title: string): string {
    const box = [x, y, width, height].map(roundCoordinate);
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${box.join(" ")}" width="${box[2]}" height="${box[3]}">`,
      `<title>${escapeHtml(title)}</title>`,
      `<rect x="${box[0]}" y="${box[1]}" width="${box[2]}" height="${box[3]}" fill="${ground}"/>`,
      ...this.out,
      "</svg>",
    ].join("\n");
  }
}
