// The overview as Markdown, with the sentences of the page in the chosen language: step, plan, findings, and the
// operators and kernels with the most time.
import type { Cell, FindingsAnswer, OverviewAnswer, PlanAnswer, Query, Table } from "../../api";
import { get } from "../../api/client";
import { formatCell, formatDuration } from "../../lib/format";
import { columnLabel, pageLabel, t, textOr } from "../../locales";
import { viewAddress } from "../../state/view-resource";
import { environmentFacts } from "./environment";
import { evidenceText, gainText } from "./findings";
import { effectText, planRungs } from "./plan-rungs";

const MAX_ROWS = 10;
/** Columns of the tables, if they have values. */
const TABLE_COLUMNS = {
  operator: ["name", "calls", "device_self_ns", "host_self_ns"],
  kernel: ["name", "calls", "total_ns", "mean_ns", "share_ratio"],
} as const;

/** Texts of a profile may contain Markdown. */
function escapeText(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll(/[\\`*_{}[\]<>#|@]/g, String.raw`\$&`);
}

function code(text: string): string {
  return `\`${text.replaceAll(/\s+/g, " ").replaceAll("`", "'").replaceAll("|", "/")}\``;
}

/** Return the first rows of a table with the columns that have values. */
export function markdownTable(table: Table, columns: readonly string[], scope: string): string[] {
  const shown = columns.filter((name) => (table.columns[name] ?? []).some((value) => value !== null && value !== 0));
  const rows = Math.min(table.columns[shown[0] ?? ""]?.length ?? 0, MAX_ROWS);
  if (rows === 0) return [];
  const kind = (name: string) => table.kinds?.[name] ?? "text";
  const cell = (name: string, value: Cell) =>
    kind(name) === "name"
      ? code(table.short_names?.[String(value)] ?? String(value ?? ""))
      : escapeText(formatCell(kind(name), value));
  const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
  return [
    line(shown.map((name) => escapeText(columnLabel(name, scope)))),
    line(shown.map((name) => (kind(name) === "name" ? "---" : "---:"))),
    ...Array.from({ length: rows }, (_, row) =>
      line(shown.map((name) => cell(name, table.columns[name]?.[row] ?? null))),
    ),
    "",
  ];
}

export function headlineLines(overview: OverviewAnswer): string[] {
  const { headline, environment } = overview;
  const step =
    headline.step_median_ns === null
      ? `${columnLabel("duration_ns", "environment")} **${formatDuration(environment.duration_ns)}**`
      : `${columnLabel("step_median_ns", "headline")} **${formatDuration(headline.step_median_ns)}** (${t("overview.from_to", { least: formatDuration(headline.step_least_ns ?? 0), most: formatDuration(headline.step_most_ns ?? 0) })})`;
  const facts = Object.entries(environmentFacts(environment)).flatMap(([name, value]) => {
    const text = formatCell(overview.kinds?.[name] ?? "text", value ?? null);
    return value === null || value === undefined || value === ""
      ? []
      : [`${columnLabel(name, "environment")}: ${escapeText(text)}`];
  });
  return [step, "", ...facts.map((fact) => `- ${fact}`), ""];
}

export function findingLines(answer: FindingsAnswer, stepped: boolean): string[] {
  const lines = answer.findings.map((finding) => {
    const title = textOr(`finding.${finding.id}.title`, finding.id);
    const sentences = [gainText(finding, stepped), evidenceText(answer, stepped, finding)]
      .filter(Boolean)
      .map(escapeText);
    return `- **${escapeText(title)}** (${t(`severity.${finding.severity}`)}): ${sentences.join(". ")}${finding.code ? ` ${code(finding.code)}` : ""}`;
  });
  const remarks = answer.remarks.map(
    (remark) =>
      `- **${escapeText(textOr(`finding.${remark.id}.title`, remark.id))}**: ${escapeText(evidenceText(answer, stepped, remark))}`,
  );
  return [...lines, ...(lines.length > 0 ? [] : remarks)];
}

export function planLines(answer: PlanAnswer): string[] {
  const { planned } = planRungs(answer);
  return planned.map(
    (rung, index) =>
      `${index + 1}. **${escapeText(textOr(`lever.${rung.lever}`, String(rung.lever)))}**: ${formatDuration(rung.step_ns ?? 0)} (${effectText(rung)})${rung.code ? ` ${code(rung.code)}` : ""}`,
  );
}

async function load<T>(view: string, views: readonly string[], query: Query = {}): Promise<T | null> {
  const target = views.includes(view) ? viewAddress(`view/${view}`, query) : null;
  return target === null ? null : ((await get<T>(target))?.body ?? null);
}

function section(heading: string, lines: readonly string[]): string[] {
  return lines.length > 0 ? [`## ${heading}`, "", ...lines, ""] : [];
}

/** Return the report of the selected run as Markdown. */
export async function reportMarkdown(
  run: string,
  views: readonly string[],
  warnings: readonly string[],
): Promise<string> {
  const [overview, findings, plan, operator, kernel] = await Promise.all([
    load<OverviewAnswer>("overview", views),
    load<FindingsAnswer>("findings", views),
    load<PlanAnswer>("plan", views),
    load<Table>("operator", views, { limit: MAX_ROWS }),
    load<Table>("kernel", views, { limit: MAX_ROWS }),
  ]);
  const stepped = overview?.headline.step_median_ns !== null;
  const lines = [
    `# ${escapeText(run)}`,
    "",
    ...warnings.map((warning) => `> ⚠ ${escapeText(warning)}\n`),
    ...(overview ? headlineLines(overview) : []),
    ...section(t("overview.findings"), findings ? findingLines(findings, stepped) : []),
    ...section(t("plan.heading"), plan ? planLines(plan) : []),
    ...section(pageLabel("operator"), operator ? markdownTable(operator, TABLE_COLUMNS.operator, "operator") : []),
    ...section(pageLabel("kernel"), kernel ? markdownTable(kernel, TABLE_COLUMNS.kernel, "kernel") : []),
  ];
  return `${lines.join("\n").trim()}\n`;
}
