// What an answer holds: its tables by the names that `table=` takes, and its values as facts, a group a structure.
import type { Cell, Json, JsonObject, Kinds } from "../api/model";

export interface Facts {
  name: string;
  values: Record<string, Cell>;
}

export interface TablePart {
  name: string;
  /** The first column of texts, by which its rows are searched. */
  text: string | null;
}

const OF_TABLE = new Set(["kinds", "columns", "total_rows", "matching_rows", "offset"]);
const TEXTS = new Set(["name", "text", "word"]);

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isCell = (value: Json): value is Cell => !isObject(value) && !(Array.isArray(value) && value.some(isObject));

function tablePart(name: string, columns: JsonObject, kinds: Kinds): TablePart {
  return { name, text: Object.keys(columns).find((column) => TEXTS.has(kinds[column] ?? "")) ?? null };
}

export function partsOf(answer: JsonObject, prefix = "", above: Kinds = {}): { tables: TablePart[]; facts: Facts[] } {
  const kinds = (answer["kinds"] as Kinds | undefined) ?? above;
  const columns = isObject(answer["columns"]) ? answer["columns"] : null;
  const fields = Object.entries(answer).filter(([key]) => !OF_TABLE.has(key));
  const tables = columns ? [tablePart(prefix, columns, kinds)] : [];
  const facts: Facts[] = [
    { name: prefix, values: Object.fromEntries(fields.filter((field): field is [string, Cell] => isCell(field[1]))) },
  ];
  for (const [key, value] of fields) {
    const name = prefix ? `${prefix}.${key}` : key;
    if (isObject(value) && Object.keys(value).length > 0 && Object.values(value).every(Array.isArray)) {
      if (!columns) tables.push(tablePart(name, value, kinds));
      continue;
    }
    const several = Array.isArray(value);
    for (const inner of several ? value.filter(isObject) : isObject(value) ? [value] : []) {
      const parts = partsOf(inner, name, kinds);
      facts.push(...parts.facts);
      // Tables in a list have no name to be asked for by.
      if (!several) tables.push(...parts.tables);
    }
  }
  return { tables, facts: facts.filter((group) => Object.keys(group.values).length > 0) };
}
