import { describe, expect, it } from "vitest";
import { importGraph } from "../tests/imports";

const imports = importGraph("static");

/** Return the files on an import cycle through `name`. */
function circle(name: string, path: readonly string[] = [], done = new Set<string>()): readonly string[] {
  if (path.includes(name)) return [...path.slice(path.indexOf(name)), name];
  if (done.has(name)) return [];
  for (const next of imports.get(name) ?? []) {
    const cycle = circle(next, [...path, name], done);
    if (cycle.length > 0) return cycle;
  }
  done.add(name);
  return [];
}

describe("the architecture", () => {
  it("has no cycle of imports", () =>
    expect([...imports.keys()].map((name) => circle(name)).filter((cycle) => cycle.length > 0)).toEqual([]));

  it("has no imports between pages", () => {
    const pageOf = (name: string) => /^src\/pages\/(\w+)\//.exec(name)?.[1];
    const strangers = [...imports].flatMap(([name, targets]) =>
      targets
        .filter((target) => pageOf(target) && pageOf(target) !== pageOf(name))
        .map((target) => `${name} -> ${target}`),
    );
    expect(strangers).toEqual([]);
  });

  it("has a shared canvas that imports no pages", () => {
    const pages = [...imports]
      .filter(([name]) => name.startsWith("src/canvas/"))
      .flatMap(([, targets]) => targets.filter((target) => target.startsWith("src/pages/")));
    expect(pages).toEqual([]);
  });
});
