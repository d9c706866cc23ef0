// What the editor can complete at the cursor: tables, columns of the statement's tables, functions and keywords.
import type { Schemas } from "../../api/model";
import { KEYWORDS, tablesOf, tokenize } from "./sql";

export type Schema = Schemas["SchemaAnswer"];

export interface Completion {
  kind: "table" | "column" | "function" | "keyword";
  name: string;
  /** The text that replaces the word. */
  insert: string;
  definition: string;
}

export interface Completions {
  /** The word at the cursor, which a completion replaces. */
  from: number;
  to: number;
  items: Completion[];
}

const MAX_ITEMS = 12;
const NO_MATCH = 3;
/** Functions of DuckDB that are often of use; the schema lists those of visualprof. */
const COMMON_FUNCTIONS = (
  "count sum avg min max median quantile_cont arg_max arg_min list coalesce round floor lag lead row_number rank " +
  "regexp_matches regexp_extract split_part starts_with contains lower length greatest least"
).split(" ");
const NOTHING: Completions = { from: 0, to: 0, items: [] };

type Table = Schema["tables"][number];

const tableItem = (table: Table): Completion => ({
  kind: "table",
  name: table.name,
  insert: table.name,
  definition: table.definition,
});

function columnItems(tables: readonly Table[]): Completion[] {
  const items = tables.flatMap((table) =>
    table.columns.map((column): Completion => ({
      kind: "column",
      name: column.name,
      insert: column.name,
      definition: column.definition,
    })),
  );
  return items.filter((item, index) => items.findIndex(({ name }) => name === item.name) === index);
}

function functionItems(schema: Schema): Completion[] {
  const own = schema.functions.map(({ name, definition }): Completion => ({
    kind: "function",
    name,
    insert: `${name}(`,
    definition,
  }));
  return [
    ...own,
    ...COMMON_FUNCTIONS.map((name): Completion => ({ kind: "function", name, insert: `${name}(`, definition: "" })),
  ];
}

const keywordItems = KEYWORDS.map((name): Completion => ({ kind: "keyword", name, insert: name, definition: "" }));

/** Return the table that a name or an alias (`FROM kernel k`) means. */
function tableOfAlias(sql: string, alias: string, schema: Schema): Table | undefined {
  const named = schema.tables.find(({ name }) => name === alias);
  const match = new RegExp(`\\b(?:from|join|,)\\s*(\\w+)\\s+(?:as\\s+)?${alias}\\b`, "i").exec(sql);
  return named ?? schema.tables.find(({ name }) => name === match?.[1]?.toLowerCase());
}

/** Names that start with the word come first, then those with a part that does, then names that contain it. */
function rank(items: readonly Completion[], word: string): Completion[] {
  const lower = word.toLowerCase();
  const place = ({ name }: Completion) => {
    const index = name.toLowerCase().indexOf(lower);
    if (index <= 0) return index === 0 ? 0 : NO_MATCH;
    return name.toLowerCase().includes(`_${lower}`) ? 1 : 2;
  };
  return items
    .map((item) => ({ item, place: place(item) }))
    .filter((entry) => entry.place < NO_MATCH)
    .sort((a, b) => a.place - b.place)
    .slice(0, MAX_ITEMS)
    .map(({ item }) => item);
}

/** Return the completions at a position. `explicit`: the user asked for them, so that an empty word has some, too. */
export function completionsAt(sql: string, position: number, schema: Schema, explicit = false): Completions {
  const before = sql.slice(0, position);
  const word = /\w*$/.exec(before)?.[0] ?? "";
  const from = position - word.length;
  const inside = tokenize(sql).find(({ start, text }) => start < position && position <= start + text.length);
  const isComment = inside?.kind === "comment" && !inside.text.endsWith("*/");
  const isText = inside?.kind === "text" && position < inside.start + inside.text.length;
  if (isComment || isText || /^\d/.test(word) || before[from - 1] === "$") return NOTHING;
  const qualifier = /(\w+)\.$/.exec(sql.slice(0, from))?.[1];
  if (qualifier !== undefined) {
    const table = tableOfAlias(sql, qualifier, schema);
    return { from, to: position, items: rank(table ? columnItems([table]) : [], word) };
  }
  if (word === "" && !explicit) return NOTHING;
  const items = rank(candidates(sql, sql.slice(0, from), schema), word);
  // A complete word needs no list that takes Enter.
  const isComplete = items.length === 1 && items[0]?.name.toLowerCase() === word.toLowerCase();
  return isComplete && !explicit ? NOTHING : { from, to: position, items };
}

function candidates(sql: string, before: string, schema: Schema): Completion[] {
  const tables = schema.tables.map(tableItem);
  if (/\b(from|join)\s+$/i.test(before)) return tables;
  const used = tablesOf(sql);
  const mentioned = schema.tables.filter(({ name }) => used.includes(name));
  return [
    ...columnItems(mentioned.length > 0 ? mentioned : schema.tables),
    ...functionItems(schema),
    ...tables,
    ...keywordItems,
  ];
}
