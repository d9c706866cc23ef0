// The parts of an answer: its tables by their `table=` name, and its values as facts, one group per structure.
import type { Cell, Json, JsonObject, Kinds } from "../api/model";

export interface FactGroup {
  name: string;
  values: Record<string, Cell>;
}

export interface TablePart {
  name: string;
  /** The first text column, used to search the rows. */
  text: string | null;
}

const TABLE_KEYS = new Set(["kinds", "columns", "total_rows", "matching_rows", "offset"]);
const TEXT_KINDS = new Set(["name", "text", "word"]);

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isCell = (value: Json): value is Cell => !isObject(value) && !(Array.isArray(value) && value.some(isObject));

function toTablePart(name: string, columns: JsonObject, kinds: Kinds): TablePart {
  return { name, text: Object.keys(columns).find((column) => TEXT_KINDS.has(kinds[column] ?? "")) ?? null };
}

export function splitAnswer(
  answer: JsonObject,
  prefix = "",
  above: Kinds = {},
): { tables: TablePart[]; facts: FactGroup[] } {
  const kinds = (answer["kinds"] as Kinds | undefined) ?? above;
  const columns = isObject(answer["columns"]) ? answer["columns"] : null;
  const fields = Object.entries(answer).filter(([key]) => !TABLE_KEYS.has(key));
  const tables = columns ? [toTablePart(prefix, columns, kinds)] : [];
  const facts: FactGroup[] = [
    { name: prefix, values: Object.fromEntries(fields.filter((field): field is [string, Cell] => isCell(field[1]))) },
  ];
  for (const [key, value] of fields) {
    const name = prefix ? `${prefix}.${key}` : key;
    if (isObject(value) && Object.keys(value).length > 0 && Object.values(value).every(Array.isArray)) {
      if (!columns) tables.push(toTablePart(name, value, kinds));
      continue;
    }
    const several = Array.isArray(value);
    for (const inner of several ? value.filter(isObject) : isObject(value) ? [value] : []) {
      const parts = splitAnswer(inner, name, kinds);
      facts.push(...parts.facts);
      // Tables in a list have no name and cannot be requested separately.
      if (!several) tables.push(...parts.tables);
    }
  }
  return { tables, facts: facts.filter((group) => Object.keys(group.values).length > 0) };
}
