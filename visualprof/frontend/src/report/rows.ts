// Selects rows of a table like the server (views/answers/table.py), among the rows that the report contains.
import type { Cell, Columns, Table } from "../api/model";

type Test = (value: Cell | undefined) => boolean;

const TESTS: Record<string, (text: string) => Test> = {
  search: (text) => (value) =>
    String(value ?? "")
      .toLowerCase()
      .includes(text.toLowerCase()),
  is: (text) => (value) => String(value) === text,
  min: (text) => (value) => typeof value === "number" && value >= Number(text),
  max: (text) => (value) => typeof value === "number" && value <= Number(text),
};

function parseTests(query: URLSearchParams): [column: string, test: Test][] {
  return [...query].flatMap(([key, text]) => {
    const [kind = "", ...column] = key.split(".");
    const test = text === "" ? undefined : TESTS[kind]?.(text);
    return test ? [[column.join(".") || "name", test] as [string, Test]] : [];
  });
}

/** Unknown values come last in both orders. */
function rowComparator(values: readonly Cell[], descending: boolean): (a: number, b: number) => number {
  const sign = descending ? -1 : 1;
  const key = (row: number) => {
    const value = values[row] ?? null;
    return typeof value === "string" ? value.toLowerCase() : Array.isArray(value) ? String(value) : value;
  };
  return (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    return x < y ? -sign : x > y ? sign : 0;
  };
}

export function selectRows(table: Table, query: URLSearchParams): Table {
  const columns = table.columns as Columns;
  const count = Object.values(columns)[0]?.length ?? 0;
  const tests = parseTests(query);
  const rows = [...Array(count).keys()].filter((row) => tests.every(([column, test]) => test(columns[column]?.[row])));
  const sort = columns[query.get("sort") ?? ""];
  if (sort) rows.sort(rowComparator(sort, query.get("order") !== "asc"));
  const from = Number(query.get("offset") ?? 0);
  const page = rows.slice(from, query.has("limit") ? from + Number(query.get("limit")) : undefined);
  const pageColumns = Object.fromEntries(
    Object.entries(columns).map(([name, values]) => [name, page.map((row) => values?.[row] ?? null)]),
  );
  return { ...table, columns: pageColumns, matching_rows: rows.length, offset: from };
}

/** Format a table for spreadsheets. Cells that would run as formulas are prefixed. */
export function toDelimitedText(table: Table, separator: string): string {
  const columns = table.columns as Columns;
  const cell = (value: Cell | undefined) => {
    const text =
      value === null || value === undefined
        ? ""
        : typeof value === "string" && /^[=+\-@\t\r]/.test(value)
          ? `'${value}`
          : String(value);
    return text.includes(separator) || /["\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const names = Object.keys(columns);
  const rows = [...Array(Object.values(columns)[0]?.length ?? 0).keys()].map((row) =>
    names.map((name) => cell(columns[name]?.[row])),
  );
  return [names, ...rows].map((row) => `${row.join(separator)}\n`).join("");
}
