import { beforeAll, describe, expect, it } from "vitest";
import { fits, readHeads, mismatchText, type ModelInput } from "./npz";
import { ALL_TEXTS, setLanguage } from "../../locales";

/** An .npz as numpy.savez writes it: stored entries followed by a directory. */
function npz(arrays: Record<string, string>): Blob {
  const parts: Uint8Array[] = [];
  const entries: Uint8Array[] = [];
  let offset = 0;
  for (const [name, head] of Object.entries(arrays)) {
    const file = new TextEncoder().encode(`${name}.npy`);
    const content = Uint8Array.from([
      0x93,
      ...new TextEncoder().encode("NUMPY"),
      1,
      0,
      head.length,
      0,
      ...new TextEncoder().encode(head),
    ]);
    const local = new DataView(new ArrayBuffer(30));
    local.setUint16(26, file.length, true);
    const entry = new DataView(new ArrayBuffer(46));
    entry.setUint32(0, 0x02014b50, true);
    entry.setUint16(28, file.length, true);
    entry.setUint32(42, offset, true);
    parts.push(new Uint8Array(local.buffer), file, content);
    entries.push(new Uint8Array(entry.buffer), file);
    offset += 30 + file.length + content.length;
  }
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  end.setUint32(
    12,
    entries.reduce((sum, entry) => sum + entry.length, 0),
    true,
  );
  end.setUint32(16, offset, true);
  return new Blob([...parts, ...entries, new Uint8Array(end.buffer)] as BlobPart[]);
}

const head = (descr: string, shape: string) => `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
const INPUTS = [
  { name: "x", dtype: "float32", dims: ["n", 3, 4] },
  { name: "scale", dtype: "float32", dims: [] },
] as unknown as ModelInput[];

beforeAll(() => setLanguage("en", ALL_TEXTS));

describe("the user's own data", () => {
  it("is read from the headers of the arrays", async () => {
    expect(
      await readHeads(npz({ x: head("<f4", "9, 3, 4"), mask: head("|b1", "9,"), scale: head("<f8", "") })),
    ).toEqual([
      { name: "x", dtype: "float32", shape: [9, 3, 4] },
      { name: "mask", dtype: "bool", shape: [9] },
      { name: "scale", dtype: "float64", shape: [] },
    ]);
    for (const other of [new Blob(["no zip"]), new Blob([]), npz({}), npz({ x: head("|O", "3,") })])
      expect(await readHeads(other)).toBeNull();
  });

  it("fits a model by names, types and dimensions", () => {
    const x = { name: "x", dtype: "float16", shape: [9, 3, 4] };
    const scale = { name: "scale", dtype: "float32", shape: [] };
    expect(mismatchText([x, scale], INPUTS)).toBe("");
    expect(
      mismatchText(
        [
          { ...x, shape: [9, 2, 3, 4] },
          { ...scale, shape: [9] },
        ],
        INPUTS,
      ),
    ).toBe("");
    expect(mismatchText([x], INPUTS)).toBe("The file has no array scale. Add one.");
    expect(mismatchText([x, scale, { ...x, name: "<b>" }], INPUTS)).toContain(
      "no input <b>. Use the names of its inputs: x, scale.",
    );
    expect(mismatchText([{ ...x, dtype: "float64" }, scale], INPUTS)).toBe(
      "x has the type float64, but the model needs float32. Convert the array.",
    );
    expect(mismatchText([{ ...x, shape: [9, 3, 5] }, scale], INPUTS)).toContain(
      "has the shape [9, 3, 5], but the model needs [n, 3, 4]",
    );
    expect(mismatchText([x, { ...scale, shape: [8] }], INPUTS)).toContain("different numbers of rows: 9, 8");
  });

  it("is cast like numpy's safe casts", () => {
    const pairs = [
      ["int8", "float16"],
      ["int16", "float32"],
      ["int32", "float64"],
      ["int64", "float64"],
      ["uint8", "int16"],
      ["bool", "int8"],
      ["float16", "float32"],
    ] as const;
    for (const [from, to] of pairs) expect([from, to, fits(from, to)]).toEqual([from, to, true]);
    for (const [from, to] of [
      ["int16", "float16"],
      ["int32", "float32"],
      ["int8", "uint8"],
      ["uint8", "int8"],
      ["float32", "float16"],
      ["float32", "int64"],
      ["int8", "bool"],
    ] as const)
      expect([from, to, fits(from, to)]).toEqual([from, to, false]);
  });
});
