import { describe, expect, it } from "vitest";
import { splitAnswer } from "./view-parts";

const table = { kinds: { id: "id", note: "text" }, columns: { id: [1], note: ["x"] }, total_rows: 1 };

describe("splitAnswer", () => {
  it("finds the answer's own table and its values", () => {
    const parts = splitAnswer({ ...table, duration_ns: 5, unlinked: { kernels: 3 } });
    expect(parts.tables).toEqual([{ name: "", text: "note" }]);
    expect(parts.facts).toEqual([
      { name: "", values: { duration_ns: 5 } },
      { name: "unlinked", values: { kernels: 3 } },
    ]);
  });

  it("names tables like the server: nested ones by path, bare columns too, none in lists", () => {
    const parts = splitAnswer({
      kinds: { step: "word" },
      steps: { step: ["1"], total_ns: [2] },
      peak: { ts_ns: 1, operators: table },
      devices: [
        { id: 0, rows: table },
        { id: 1, rows: table },
      ],
    });
    expect(parts.tables).toEqual([
      { name: "steps", text: "step" },
      { name: "peak.operators", text: "note" },
    ]);
    expect(parts.facts.map((group) => group.name)).toEqual(["peak", "devices", "devices"]);
  });

  it("treats lists of plain values as facts, and returns nothing for an empty answer", () => {
    expect(splitAnswer({ kinds: {}, notes: ["a", "b"], none: [], operators: null }).facts).toEqual([
      { name: "", values: { notes: ["a", "b"], none: [], operators: null } },
    ]);
    expect(splitAnswer({})).toEqual({ tables: [], facts: [] });
  });
});
