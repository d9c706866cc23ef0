import { describe, expect, it } from "vitest";
import { locateError, parametersOf, tablesOf, tokenize } from "./sql";

describe("a statement", () => {
  it.each([
    "SELECT name, sum(dur) FROM kernel WHERE name LIKE '%a''b' -- time\nLIMIT $n",
    '/* open\nSELECT "odd name" FROM op',
    "SELECT 'open",
    "",
    "中文 \u{1f600} SELECT 1.5e3",
  ])("is the text of its tokens: %j", (sql) => {
    const tokens = tokenize(sql);
    expect(tokens.map(({ text }) => text).join("")).toBe(sql);
    for (const { text, start } of tokens) expect(sql.slice(start, start + text.length)).toBe(text);
  });

  it("has keywords, texts, comments, numbers and parameters", () => {
    const kinds = tokenize("select 'from' -- join\n, 12, $n, dur").filter(({ kind }) => kind !== "other");
    expect(kinds.map(({ kind, text }) => `${kind} ${text}`)).toEqual([
      "keyword select",
      "text 'from'",
      "comment -- join",
      "number 12",
      "parameter $n",
      "name dur",
    ]);
  });

  it("reads the tables after FROM and JOIN, not the words of texts and columns", () => {
    const sql = "SELECT step, 'from op' FROM kernel k -- from gap\nLEFT JOIN \"slice\" l ON l.id = k.launch_id";
    expect(tablesOf(sql)).toEqual(["kernel", "slice"]);
    expect(tablesOf("SELECT * FROM (SELECT 1)")).toEqual([]);
  });

  it("has each parameter once", () => expect(parametersOf("SELECT $b, $a, $b, '$c' -- $d")).toEqual(["b", "a"]));
});

describe("an error", () => {
  const message = (line: number, text: string, indent: number, width: number) =>
    `Binder Error: no such column\n\nLINE ${line}: ${text}\n${" ".repeat(`LINE ${line}: `.length + indent)}${"^".repeat(width)}`;

  it("has its line, its column and the marked characters", () => {
    const sql = "SELECT name,\n  durr\nFROM kernel";
    const { text, place } = locateError(message(2, "  durr", 2, 4), sql);
    expect(text).toBe("Binder Error: no such column");
    expect(place).toEqual({ line: 2, column: 3, start: 15, end: 19 });
    expect(sql.slice(place?.start, place?.end)).toBe("durr");
  });

  it("counts wide characters as the server's excerpt does", () => {
    const sql = "SELECT '中文', nme FROM kernel";
    const { place } = locateError(message(1, sql, "SELECT '中文', ".length + 2, 3), sql);
    expect(sql.slice(place?.start, place?.end)).toBe("nme");
  });

  it("is found in a long line, of which the server shows a part", () => {
    const sql = `SELECT ${"a, ".repeat(60)}nme, b FROM kernel`;
    const shown = sql.slice(150, 200);
    const { place } = locateError(message(1, `...${shown}...`, 3 + shown.indexOf("nme"), 3), sql);
    expect(sql.slice(place?.start, place?.end)).toBe("nme");
    expect(place?.column).toBe(sql.indexOf("nme") + 1);
  });

  it("has no place if the server names none, or one that the statement lacks", () => {
    expect(locateError("the query is empty", "")).toEqual({ text: "the query is empty", place: null });
    expect(locateError(message(9, "SELECT 2", 0, 1), "SELECT 1").place).toBeNull();
  });
});
