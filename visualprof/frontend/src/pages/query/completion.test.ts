import { describe, expect, it } from "vitest";
import { completionsAt } from "./completion";
import { sampleColumn, sampleSchema } from "./sample-schema";

const schema = sampleSchema([sampleColumn("dur"), sampleColumn("launch_delay")], {
  name: "gap",
  definition: "Gaps.",
  definition_zh: "间隙。",
  has_events: false,
  rows: null,
  columns: [sampleColumn("dur"), sampleColumn("cause")],
});

/** The names that are offered where `|` is. */
function offered(text: string, explicit = false): string[] {
  const position = text.indexOf("|");
  return completionsAt(text.replace("|", ""), position, schema, explicit).items.map(
    ({ kind, name }) => `${kind} ${name}`,
  );
}

describe("completions", () => {
  it("after FROM and JOIN are tables", () => {
    expect(offered("SELECT * FROM k|")).toEqual(["table kernel"]);
    expect(offered("SELECT * FROM |", true)).toEqual(["table kernel", "table gap"]);
  });

  it("are columns of the statement's tables, functions and keywords", () => {
    expect(offered("SELECT c| FROM gap")).toContain("column cause");
    expect(offered("SELECT c| FROM gap")).toContain("function covered");
    expect(offered("SELECT c| FROM kernel")).not.toContain("column cause");
    expect(offered("sel|")[0]).toBe("keyword SELECT");
  });

  it("after an alias are columns of its table", () => {
    expect(offered("SELECT k.| FROM kernel k JOIN gap g ON true")).toEqual(["column dur", "column launch_delay"]);
    expect(offered("SELECT g.ca| FROM kernel k JOIN gap AS g ON true")).toEqual(["column cause"]);
    expect(offered("SELECT x.| FROM kernel k")).toEqual([]);
  });

  it("put names that start with the word first, then names with a part that does", () =>
    expect(offered("SELECT d| FROM kernel").slice(0, 3)).toEqual(["column dur", "keyword DISTINCT", "keyword DESC"]));

  it("find a part of a name", () => expect(offered("SELECT delay| FROM kernel")).toEqual(["column launch_delay"]));

  it.each(["SELECT 'du|'", "SELECT 1 -- du|", "SELECT 12|", "SELECT $du|", "SELECT |", "SELECT * FROM kernel|"])(
    "are not offered in %s",
    (text) => expect(offered(text)).toEqual([]),
  );

  it("of a function end in its parenthesis", () => {
    const { from, to, items } = completionsAt("SELECT cov", 10, schema);
    expect([from, to, items[0]?.insert]).toEqual([7, 10, "covered("]);
  });
});
