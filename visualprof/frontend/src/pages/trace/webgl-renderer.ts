// Instanced rectangles on the graphics card: a tile is uploaded once, and each lane is one draw call.
import { TILE_BUCKETS } from "./tile-levels";
import { laneRange, type SliceTile } from "./tile";
import { GAP_FROM, lastEntryBefore, type Part } from "./slice-geometry";
import type { Picture, Renderer, Strip } from "./renderer";

// The same rounding as in slice-geometry.ts, so that pointing matches the drawing.
const VERTEX = `#version 300 es
in float first; in float last; in vec4 solid; in vec4 muted;
uniform vec2 place; uniform vec2 rows; uniform vec2 size;
flat out vec4 plain; flat out vec4 many; flat out float until;
void main() {
  float x0 = floor(first * place.x + place.y);
  float x1 = max(x0 + 1.0, floor(last * place.x + place.y));
  if (x1 - x0 >= ${GAP_FROM}.0 && last <= ${TILE_BUCKETS}.0) x1 -= 1.0;
  until = max(x0 + 1.0, floor((floor(first) + 1.0) * place.x + place.y));
  plain = solid; many = muted;
  float x = (gl_VertexID & 1) == 0 ? x0 : x1;
  float y = (gl_VertexID & 2) == 0 ? rows.x : rows.y;
  gl_Position = vec4(x / size.x * 2.0 - 1.0, 1.0 - y / size.y * 2.0, 0.0, 1.0);
}`;
const FRAGMENT = `#version 300 es
precision highp float;
flat in vec4 plain; flat in vec4 many; flat in float until;
out vec4 color;
void main() { color = gl_FragCoord.x < until ? many : plain; }`;

const MAX_TILES = 600;

function createProgram(gl: WebGL2RenderingContext): WebGLProgram | null {
  const program = gl.createProgram();
  for (const [kind, text] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(kind);
    if (!shader) return null;
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  ["first", "last", "solid", "muted"].forEach((name, index) => gl.bindAttribLocation(program, index, name));
  gl.linkProgram(program);
  return gl.getProgramParameter(program, gl.LINK_STATUS) ? program : null;
}

interface Uploaded {
  buffer: WebGLBuffer;
  look: number;
}

export function webglRenderer(canvas: HTMLCanvasElement): Renderer | null {
  const gl = canvas.getContext("webgl2", { alpha: false, antialias: false, depth: false, preserveDrawingBuffer: true });
  const program = gl && createProgram(gl);
  if (!gl || !program) return null;
  const [place, rows, size] = ["place", "rows", "size"].map((name) => gl.getUniformLocation(program, name));
  const uploads = new Map<SliceTile, Uploaded>();
  gl.useProgram(program);
  for (let attribute = 0; attribute < 4; attribute += 1) {
    gl.enableVertexAttribArray(attribute);
    gl.vertexAttribDivisor(attribute, 1);
  }

  function bufferOf(tile: SliceTile): WebGLBuffer | null {
    const paint = tile.paint;
    let uploaded = uploads.get(tile);
    uploads.delete(tile);
    if (!uploaded || uploaded.look !== paint?.look) {
      const buffer = uploaded?.buffer ?? gl?.createBuffer();
      if (!gl || !buffer || !paint) return null;
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      const bytes = tile.start.byteLength;
      gl.bufferData(gl.ARRAY_BUFFER, 4 * bytes, gl.STATIC_DRAW);
      [tile.start, tile.end, paint.solid, paint.muted].forEach((column, nth) =>
        gl.bufferSubData(gl.ARRAY_BUFFER, nth * bytes, column),
      );
      uploaded = { buffer, look: paint.look };
    } else gl?.bindBuffer(gl.ARRAY_BUFFER, uploaded.buffer);
    uploads.set(tile, uploaded);
    return uploaded.buffer;
  }

  function forget(): void {
    for (const [tile, { buffer }] of uploads) {
      if (uploads.size <= MAX_TILES) return;
      gl?.deleteBuffer(buffer);
      uploads.delete(tile);
    }
  }

  function clear(x: number, y: number, width: number, height: number, color: number): void {
    if (!gl || width <= 0 || height <= 0) return;
    gl.scissor(x, canvas.height - y - height, width, height);
    gl.clearColor((color & 255) / 255, ((color >> 8) & 255) / 255, ((color >> 16) & 255) / 255, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
  }

  function drawPart(strip: Strip, part: Part, top: number, bottom: number): void {
    const [begin, end] = laneRange(part.tile, strip.lane);
    const first = Math.max(begin, lastEntryBefore(part, begin, end, part.clip0));
    const last = lastEntryBefore(part, begin, end, part.clip1 - 1) + 1;
    if (!gl || last <= first || part.clip1 <= part.clip0 || !bufferOf(part.tile)) return;
    const bytes = part.tile.start.byteLength;
    for (let column = 0; column < 4; column += 1) {
      const at = column * bytes + first * 4;
      if (column < 2) gl.vertexAttribPointer(column, 1, gl.FLOAT, false, 4, at);
      else gl.vertexAttribPointer(column, 4, gl.UNSIGNED_BYTE, true, 4, at);
    }
    gl.scissor(part.clip0, canvas.height - bottom, part.clip1 - part.clip0, bottom - top);
    gl.uniform2f(place ?? null, part.scale, part.offset);
    gl.uniform2f(rows ?? null, top, bottom);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, last - first);
  }

  return {
    name: "webgl",
    draw(picture: Picture) {
      const { width, height } = picture;
      if (width < 1 || height < 1) return;
      if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width;
        canvas.height = height;
      }
      gl.viewport(0, 0, width, height);
      gl.enable(gl.SCISSOR_TEST);
      gl.uniform2f(size ?? null, width, height);
      clear(0, 0, width, height, picture.ground);
      for (const column of picture.columns) clear(column.x, 0, column.width, height, column.color);
      for (const band of picture.bands) clear(0, band.y, width, band.height, band.color);
      for (const strip of picture.strips) {
        const top = Math.max(strip.y, strip.top);
        const bottom = Math.min(strip.y + strip.height, strip.bottom);
        if (bottom > top) for (const part of strip.parts) drawPart(strip, part, top, bottom);
      }
      forget();
    },
    dispose() {
      uploads.clear();
      gl.getExtension("WEBGL_lose_context")?.loseContext();
    },
  };
}

const SOFTWARE_RENDERERS = /swiftshader|llvmpipe|softpipe|software|basic render/i;

/** Whether the browser reports a real graphics card. Software OpenGL is far slower than the software renderer. */
export function hasGraphicsCard(): boolean {
  const gl = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (!gl) return false;
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = String(info ? gl.getParameter(info.UNMASKED_RENDERER_WEBGL) : "");
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return name !== "" && !SOFTWARE_RENDERERS.test(name);
}
