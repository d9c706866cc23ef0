// Reads the array headers of an .npz and checks whether they fit a model's inputs, before anything is uploaded.
import type { UploadAnswer } from "../../api/model";
import { t } from "../../locales";

export interface ArrayHead {
  name: string;
  dtype: string;
  shape: number[];
}

export type ModelInput = NonNullable<UploadAnswer["model"]>["inputs"][number];

const DTYPE_KINDS: Record<string, string> = { f: "float", i: "int", u: "uint", b: "bool" };
const END = 0x06054b50;
const ENTRY = 0x02014b50;
const FIRST_BYTES = 1 << 16;

/** Return the arrays of a file, or null if it is not an .npz of plain numbers. */
export async function readHeads(file: Blob): Promise<ArrayHead[] | null> {
  try {
    const from = Math.max(0, file.size - FIRST_BYTES - 22);
    const tail = new DataView(await file.slice(from).arrayBuffer());
    let end = tail.byteLength - 22;
    while (end >= 0 && tail.getUint32(end, true) !== END) end -= 1;
    const entries = new DataView(
      await file
        .slice(tail.getUint32(end + 16, true), tail.getUint32(end + 16, true) + tail.getUint32(end + 12, true))
        .arrayBuffer(),
    );
    const heads: ArrayHead[] = [];
    for (let at = 0; at + 46 <= entries.byteLength && entries.getUint32(at, true) === ENTRY;) {
      const length = entries.getUint16(at + 28, true);
      const name = new TextDecoder().decode(new Uint8Array(entries.buffer, at + 46, length));
      const head = await readHead(file, entries.getUint32(at + 42, true), entries.getUint16(at + 10, true));
      if (head === null) return null;
      heads.push({ name: name.replace(/\.npy$/, ""), ...head });
      at += 46 + length + entries.getUint16(at + 30, true) + entries.getUint16(at + 32, true);
    }
    return heads.length > 0 ? heads : null;
  } catch {
    // A damaged file: its offsets are outside of the file.
    return null;
  }
}

async function readHead(file: Blob, offset: number, method: number): Promise<Omit<ArrayHead, "name"> | null> {
  const local = new DataView(await file.slice(offset, offset + 30).arrayBuffer());
  const start = offset + 30 + local.getUint16(26, true) + local.getUint16(28, true);
  const packed = file.slice(start, start + FIRST_BYTES);
  const text = new TextDecoder("latin1").decode(method === 0 ? await packed.arrayBuffer() : await firstChunk(packed));
  const [, dtype = "", size = ""] = /^.NUMPY[\s\S]{4,6}?\{.*?'descr': '[<|=]([fiub])(\d)'/.exec(text) ?? [];
  const shape = /'shape': \(([^)]*)\)/.exec(text)?.[1];
  const kind = DTYPE_KINDS[dtype];
  if (kind === undefined || shape === undefined) return null;
  return {
    dtype: kind === "bool" ? kind : `${kind}${Number(size) * 8}`,
    shape: shape
      .split(",")
      .map((entry) => entry.trim())
      .filter(Boolean)
      .map(Number),
  };
}

async function firstChunk(packed: Blob): Promise<Uint8Array> {
  const reader = packed.stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const { value } = await reader.read();
  // The rest is cut off, so that the stream ends with an error that can be ignored.
  reader.cancel().catch(() => undefined);
  return value ?? new Uint8Array();
}

/** Whether a type can be converted safely to another, as in numpy's safe casts. */
export function fits(from: string, to: string): boolean {
  if (from === to || from === "bool") return true;
  const [[kind, bits], [targetKind, room]] = [from, to].map(
    (dtype) => [dtype.replace(/\d+/, ""), Number(/\d+/.exec(dtype)?.[0] ?? 0)] as const,
  ) as [readonly [string, number], readonly [string, number]];
  if (kind === targetKind) return bits < room;
  if (targetKind === "float" && kind !== "float") return room === 64 || bits * 2 <= room;
  return kind === "uint" && targetKind === "int" && bits < room;
}

/** Return why arrays do not fit a model, as a text; "" if they fit. */
export function mismatchText(heads: readonly ArrayHead[], inputs: readonly ModelInput[]): string {
  const names = inputs.map((input) => input.name).join(", ");
  const other = heads.find((head) => !inputs.some((input) => input.name === head.name));
  if (other) return t("run.data_unknown", { name: other.name, names });
  const counts = new Set(heads.filter((head) => head.shape.length > 0).map((head) => head.shape[0]));
  for (const { name, dtype, dims } of inputs) {
    const head = heads.find((candidate) => candidate.name === name);
    if (!head) return t("run.data_missing", { name });
    if (dtype && !fits(head.dtype, dtype)) return t("run.data_dtype", { name, dtype: head.dtype, wanted: dtype });
    if (!dims || head.shape.length === 0) continue;
    const more = head.shape.length - dims.length;
    const differs = dims.some(
      (dim, index) => (more === 1 || index > 0) && typeof dim === "number" && head.shape[index + more] !== dim,
    );
    if ((more !== 0 && more !== 1) || differs)
      return t("run.data_shape", { name, shape: `[${head.shape.join(", ")}]`, wanted: `[${dims.join(", ")}]` });
  }
  return counts.size > 1 ? t("run.data_rows_differ", { rows: [...counts].join(", ") }) : "";
}
