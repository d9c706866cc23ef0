// Verdicts as sentences with their numbers.
import type { Cell, Kinds, Verdict } from "../../api/model";
import { formatCell } from "../../lib/format";
import { fillText } from "../../lib/fill-text";
import { textOr } from "../../locales";

export interface VerdictText {
  id: string;
  severity: string;
  report: string;
  batch: number | null;
  title: string;
  text: string;
}

/** Return a verdict in the language of the web UI, or its id if there is no text. `kinds`: the kinds of the answer. */
export function verdictText({ id, severity, report, batch, batches, evidence }: Verdict, kinds: Kinds): VerdictText {
  const values: Record<string, Cell | undefined> = { ...evidence, batch, batches: otherBatches(batches, batch) };
  return {
    id,
    batch,
    severity,
    report,
    title: textOr(`verdict.${id}.title`, id.replaceAll("_", " ")),
    text: fillText(textOr(`verdict.${id}.text`, ""), (key) =>
      values[key] === null || values[key] === undefined ? null : formatCell(kinds[key] ?? "text", values[key]),
    ),
  };
}

export interface VerdictGroup {
  id: string;
  title: string;
  severity: string;
  /** One row per text, with the results that it is about. */
  rows: { text: string; items: VerdictText[] }[];
}

/** Return the verdicts by title: a title is said once, and so is a text that several results share. */
export function groupVerdicts(verdicts: readonly VerdictText[]): VerdictGroup[] {
  const groups = new Map<string, VerdictGroup>();
  for (const verdict of verdicts) {
    const { id, title, severity, text } = verdict;
    const key = `${id} ${severity}`;
    const group = groups.get(key) ?? { id, title, severity, rows: [] };
    groups.set(key, group);
    const row = group.rows.find((candidate) => candidate.text === text);
    if (row) row.items.push(verdict);
    else group.rows.push({ text, items: [verdict] });
  }
  return [...groups.values()];
}

/** Return the other batch sizes for which it also holds. */
function otherBatches(batches: readonly number[], worst: number | null): string | null {
  const rest = batches.filter((batch) => batch !== worst);
  return rest.length > 0 ? rest.join(", ") : null;
}
