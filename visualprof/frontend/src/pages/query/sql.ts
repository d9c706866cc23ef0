// The parts of a statement: for highlighting, and to know its tables and parameters.
export type TokenKind = "comment" | "text" | "number" | "parameter" | "keyword" | "name" | "other";

export interface Token {
  kind: TokenKind;
  text: string;
  /** Position of the first character in the statement. */
  start: number;
}

export const KEYWORDS: readonly string[] = (
  "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET WITH RECURSIVE AS DISTINCT ALL JOIN LEFT RIGHT FULL INNER " +
  "CROSS ASOF ON USING UNION EXCEPT INTERSECT CASE WHEN THEN ELSE END AND OR NOT IN IS NULL LIKE ILIKE BETWEEN " +
  "EXISTS OVER PARTITION WINDOW ROWS RANGE PRECEDING FOLLOWING FILTER QUALIFY ASC DESC NULLS FIRST LAST CAST TRUE " +
  "FALSE EXPLAIN VALUES UNPIVOT"
).split(" ");
const IS_KEYWORD = new Set(KEYWORDS);

const PATTERNS: readonly [TokenKind, RegExp][] = [
  ["comment", /--[^\n]*|\/\*[^]*?(?:\*\/|$)/y],
  ["text", /'(?:[^']|'')*(?:'|$)/y],
  ["name", /"(?:[^"]|"")*(?:"|$)|[A-Za-z_][\w]*/y],
  ["number", /\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?/y],
  ["parameter", /\$\w+/y],
];

/** Split a statement into tokens, which together are the statement. */
export function tokenize(sql: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  while (at < sql.length) {
    const { kind, text } = matchAt(sql, at);
    const last = tokens.at(-1);
    if (kind === "other" && last?.kind === "other") last.text += text;
    else tokens.push({ kind, text, start: at });
    at += text.length;
  }
  return tokens;
}

function matchAt(sql: string, at: number): { kind: TokenKind; text: string } {
  for (const [kind, pattern] of PATTERNS) {
    pattern.lastIndex = at;
    const text = pattern.exec(sql)?.[0];
    if (text) return { kind: kind === "name" && IS_KEYWORD.has(text.toUpperCase()) ? "keyword" : kind, text };
  }
  return { kind: "other", text: sql.charAt(at) };
}

/** Return the statement's tokens without comments and texts, in which words mean nothing. */
function codeTokens(sql: string): Token[] {
  return tokenize(sql).filter(({ kind, text }) => kind !== "comment" && kind !== "text" && text.trim() !== "");
}

/** Return the names after FROM and JOIN, in lower case. */
export function tablesOf(sql: string): string[] {
  const tokens = codeTokens(sql);
  const names = tokens.flatMap(({ text }, index) => {
    const next = tokens[index + 1];
    return /^(from|join)$/i.test(text) && next && next.kind !== "other" ? [next.text.replaceAll('"', "")] : [];
  });
  return [...new Set(names.map((name) => name.toLowerCase()))];
}

/** Return the names of the statement's parameters, in order. */
export function parametersOf(sql: string): string[] {
  const names = codeTokens(sql).filter(({ kind }) => kind === "parameter");
  return [...new Set(names.map(({ text }) => text.slice(1)))];
}

export interface ErrorPlace {
  /** From 1. */
  line: number;
  /** From 1. */
  column: number;
  /** The marked characters in the statement. */
  start: number;
  end: number;
}

const MARKED = /\n\s*LINE (\d+): (.*)\n( *)(\^+)\s*$/;
/** Terminals show these characters two columns wide, and DuckDB counts them so. */
const isWide = (character: string) => character > "\u2e80";

/** Return the characters before a column of the terminal. */
function charactersBefore(text: string, columns: number): number {
  let [width, count] = [0, 0];
  for (const character of text) {
    if (width >= columns) break;
    width += isWide(character) ? 2 : 1;
    count += character.length;
  }
  return count;
}

/** Return an error of DuckDB without its excerpt of the statement, and the place that the excerpt marks. */
export function locateError(message: string, sql: string): { text: string; place: ErrorPlace | null } {
  const match = MARKED.exec(message);
  if (!match) return { text: message, place: null };
  const [, number = "1", excerpt = "", indent = "", mark = ""] = match;
  const text = message.slice(0, match.index).trim();
  const line = sql.split("\n")[Number(number) - 1];
  // A long line is cut at both ends.
  const shown = excerpt.replace(/^\.\.\.|\.\.\.$/g, "");
  const offset = line === undefined ? -1 : line.indexOf(shown);
  if (line === undefined || offset < 0) return { text, place: null };
  const cut = excerpt.startsWith("...") ? 3 : 0;
  const columns = indent.length - `LINE ${number}: `.length;
  const column = offset + charactersBefore(shown, columns - cut);
  const lineStart =
    sql
      .split("\n")
      .slice(0, Number(number) - 1)
      .join("\n").length + (Number(number) > 1 ? 1 : 0);
  const start = lineStart + column;
  const end = Math.min(lineStart + line.length, start + charactersBefore(sql.slice(start), mark.length));
  return { text, place: { line: Number(number), column: column + 1, start, end } };
}
