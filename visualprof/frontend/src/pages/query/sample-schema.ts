/** A small schema for tests. */
import type { Schema } from "./completion";

type Table = Schema["tables"][number];
type Column = Table["columns"][number];

/** A column of durations, unless `changes` say otherwise. */
export const sampleColumn = (name: string, changes: Partial<Column> = {}): Column => ({
  name,
  type: "BIGINT",
  kind: "ns",
  unit: "ns",
  unit_zh: "ns",
  definition: `${name}.`,
  definition_zh: `${name}。`,
  ...changes,
});

/** A schema with a table of kernels of these columns, further tables, and a function. */
export const sampleSchema = (columns: Column[], ...tables: Table[]): Schema => ({
  available: true,
  reason: "",
  hint: "",
  max_rows: 10,
  tables: [
    { name: "kernel", definition: "Kernels.", definition_zh: "核函数。", has_events: true, rows: null, columns },
    ...tables,
  ],
  functions: [{ name: "covered", call: "covered(ts, dur)", definition: "Union.", definition_zh: "并集。" }],
});
