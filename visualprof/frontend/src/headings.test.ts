// Each heading of each page has a definition, or a reason why it has none.
import { beforeAll, describe, expect, it } from "vitest";
import { sources } from "../tests/imports";
import { ALL_TEXTS, LANGUAGES, setLanguage, te } from "./locales";

const CARDS = /<(Panel|ChartCard|ParetoCard|TablePanel|WhatIf|ChangeTable)\b((?:[^>"]|"[^"]*")*)>/g;
const HEADINGS = /<h[2-6]\b(?:[^>"]|"[^"]*")*>[^]*?<\/h[2-6]>(\s*<InfoSign)?/g;

/** Components that pass on the definition which a page gives them. */
const PASSED_ON = ["components/table/table-panel", "components/what-if", "charts/chart-card", "charts/pareto-card"];

/** Headings without a definition. */
const EXEMPT: Readonly<Record<string, string>> = {
  "components/definition-card": "is a definition",
  "shell/definition-list": "is a list of definitions",
  "shell/help-dialog": "groups of shortcuts",
  "shell/log-in": "title of a form",
  "shell/session-dialog": "title of a form",
  "shell/empty-state": "instructions",
  "shell/live-panel": "a state, with an explanation below",
  "shell/span-state": "a state, with an explanation below",
  "pages/view": "name of a group of values of a view that the web UI does not know",
  "pages/agents/add-machine": "instructions",
  "pages/agents/agent-card": "name of a machine",
  "pages/account/projects": "name of a project",
  "pages/graph/empty-model": "instructions",
  "pages/graph/group-details": "name of a group",
  "pages/graph/node-details": "type of a node",
  "pages/trace/details-panel": "name of an event",
};

const components = Object.entries(sources)
  .filter(([path]) => path.endsWith(".vue"))
  .map(([path, text]) => [path.replace(/^src\/|\.vue$/g, ""), text.replace(/^.*?<\/script>/s, "")] as const);
const keys = (text: string) =>
  [...text.matchAll(/[\s{]about(?:: '|=")([\w.]+)/g)].map(([, key = ""]) => `about.${key}`);

describe("definitions", () => {
  beforeAll(() => setLanguage("en", ALL_TEXTS));

  it("belong to every card", () => {
    const bare = components.flatMap(([path, text]) =>
      [...text.matchAll(CARDS)]
        .filter(([, , attributes = ""]) => !/\s:?(hint|about)="/.test(attributes))
        .map(([tag]) => `${path}: ${tag}`),
    );
    expect(bare).toEqual([]);
  });

  it("belong to every other heading that is not exempt", () => {
    const bare = components.flatMap(([path, text]) =>
      path in EXEMPT ? [] : [...text.matchAll(HEADINGS)].filter(([, sign]) => !sign).map(([tag]) => `${path}: ${tag}`),
    );
    expect(bare).toEqual([]);
  });

  it("have only exemptions that are needed", () => {
    const withHeadings = components.filter(([, text]) => [...text.matchAll(HEADINGS)].some(([, sign]) => !sign));
    expect(Object.keys(EXEMPT).sort()).toEqual(withHeadings.map(([path]) => path).sort());
    expect(components.map(([path]) => path)).toEqual(expect.arrayContaining(PASSED_ON));
  });

  it.each(LANGUAGES)("exist in %s for every key that a page uses", async (language) => {
    await setLanguage(language, ALL_TEXTS);
    const used = components.flatMap(([, text]) => keys(text));
    expect(used.length).toBeGreaterThan(40);
    expect([...new Set(used)].filter((key) => !te(key))).toEqual([]);
  });

  it("explain every error that offers an explanation", async () => {
    await setLanguage("en", ALL_TEXTS);
    const listed = /EXPLAINED = new Set\(\[([\d, ]+)\]\)/.exec(sources["src/components/problem.vue"] ?? "")?.[1] ?? "";
    expect(listed.split(", ").filter((status) => !te(`about.error.${status}`))).toEqual([]);
  });
});
