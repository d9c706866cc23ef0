// Rows of the table of measured candidates, as texts.
import type { Cell, Columns, EvaluationAnswer } from "../../api/model";
import { formatBytes, formatCount, formatDuration, formatRatio, UNKNOWN } from "../../lib/format";

export interface AdviceRow {
  key: string;
  report: string;
  name: string;
  kind: string;
  verdict: string;
  why: string;
  passes: boolean;
  front: boolean;
  share: string;
  between: string;
  time: string;
  beside: string;
  wide: [number, number] | null;
  error: string;
  random: string;
  top1: string;
  metric: string;
  size: string;
  memory: string;
  took: string;
  ran: string;
  places: string;
  operators: string;
  sizes: string;
  usable: boolean;
}

const formatCell = <T extends Cell>(value: T | undefined, text: (value: number) => string) =>
  typeof value === "number" ? text(value) : UNKNOWN;
const scientific = (value: number) =>
  value === 0 ? "0" : value < 0.01 || value >= 1000 ? value.toExponential(1) : value.toPrecision(2);
const percent = (value: Cell | undefined) => (typeof value === "number" ? value * 100 : Number.NaN);
// Range of the scale: 0 to 2 times the original, which covers most candidates.
const MAX_PERCENT = 200;
const toPercent = (value: number) => Math.min(100, Math.max(0, (value / MAX_PERCENT) * 100));

/** Returns one row per candidate, in the order of the answer. */
export function adviceRows(advice: EvaluationAnswer["advice"]): AdviceRow[] {
  return advice.report.map((report, at): AdviceRow => {
    const field = (name: string) => (advice as Columns)[name]?.[at] ?? null;
    const [low, high] = [percent(field("ratio_low")), percent(field("ratio_high"))];
    const [agreed, judged] = [field("agreed"), field("rows")];
    const [verdict, kind, files] = [String(field("verdict") ?? ""), String(field("kind") ?? ""), field("files")];
    const ok = ["faster", "equal", "slower", "undecided"].includes(verdict);
    return {
      key: `${report}|${String(field("candidate"))}`,
      report: String(report),
      name: String(field("candidate")),
      kind,
      verdict,
      why: String(field("why") ?? ""),
      passes: field("passes") === true,
      front: field("front") === true,
      share: formatCell(field("ratio"), formatRatio),
      between: Number.isFinite(low) ? `${formatRatio(low / 100)} – ${formatRatio(high / 100)}` : "",
      time: formatCell(field("latency_ns"), formatDuration),
      beside:
        kind !== "original" && typeof field("original_ns") === "number"
          ? formatDuration(Number(field("original_ns")))
          : "",
      wide: Number.isFinite(low) ? [toPercent(low), toPercent(high)] : null,
      error: formatCell(field("error"), scientific),
      random: formatCell(field("random_error"), scientific),
      top1:
        typeof agreed === "number" && typeof judged === "number"
          ? `${formatCount(agreed)} / ${formatCount(judged)}`
          : "",
      metric: typeof field("metric") === "number" ? scientific(Number(field("metric"))) : "",
      size: formatCell(field("size_bytes"), formatBytes),
      memory: formatCell(field("rss_bytes"), formatBytes),
      took: formatCell(field("convert_ns"), formatDuration),
      ran: String(field("ran") ?? ""),
      places: String(field("places") ?? ""),
      operators: String(field("operators") ?? ""),
      sizes: String(field("ratios") ?? ""),
      usable: ok && (kind === "runtime" || (Array.isArray(files) && files.length > 0)),
    };
  });
}
