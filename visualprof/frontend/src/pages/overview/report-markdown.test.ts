import { beforeAll, describe, expect, it } from "vitest";
import type { FindingsAnswer, PlanAnswer, Table } from "../../api";
import { ALL_TEXTS, setLanguage } from "../../locales";
import { findingLines, markdownTable, planLines } from "./report-markdown";

beforeAll(() => setLanguage("en", ALL_TEXTS));

describe("the report in Markdown", () => {
  it("has at most ten rows of the columns with values, with names that cannot become Markdown", () => {
    const table = {
      columns: {
        name: Array.from({ length: 12 }, (_, row) => (row === 0 ? "a|`b`" : `k${row}`)),
        calls: Array<number>(12).fill(2),
        device_self_ns: Array<null>(12).fill(null),
        host_self_ns: Array<number>(12).fill(1500),
      },
      kinds: { name: "name", calls: "count", device_self_ns: "ns", host_self_ns: "ns" },
      total_rows: 12,
    } as unknown as Table;
    const lines = markdownTable(table, ["name", "calls", "device_self_ns", "host_self_ns"], "operator");
    expect(lines[0]).toMatch(/^\| Name \| Calls \| [^|]+ \|$/);
    expect(lines[1]).toBe("| --- | ---: | ---: |");
    expect(lines[2]).toMatch(/^\| `a\/'b'` \| 2 \| 1\.50.µs \|$/);
    expect(lines).toHaveLength(2 + 10 + 1);
  });

  it("has the sentences of the findings", () => {
    const answer = {
      findings: [
        {
          id: "dataloader_bound",
          severity: "high",
          gain_ns_per_step: 2_000_000,
          gain_ratio: 0.2,
          most_ns_per_step: null,
          evidence: {},
          code: "DataLoader(num_workers=4)",
        },
      ],
      remarks: [],
      kinds: {},
    } as unknown as FindingsAnswer;
    const [line = ""] = findingLines(answer, true);
    expect(line).toContain("Saves 2.00");
    expect(line).toContain("`DataLoader(num_workers=4)`");
    expect(line).not.toContain("dataloader_bound");
  });

  it("numbers the changes of the plan", () => {
    const columns = Object.fromEntries(
      Object.entries({ lever: "tf32", change: "x", step_ns: 8e6, gain_ns: 2e6, gain_ratio: 0.2, most_ns: null }).map(
        ([name, value]) => [name, [value]],
      ),
    );
    const answer = { baseline_ns: 1e7, rungs: { columns } } as unknown as PlanAnswer;
    expect(planLines(answer)[0]).toMatch(/^1\. \*\*.+\*\*: 8\.00.ms/);
  });
});
