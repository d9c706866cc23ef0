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

/** A verdict in the locale's words; without any, its id stands for itself. kinds: those of the answer that it came with. */
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

/** The other sizes for which it holds, too. */
function otherBatches(batches: readonly number[], worst: number | null): string | null {
  const rest = batches.filter((batch) => batch !== worst);
  return rest.length > 0 ? rest.join(", ") : null;
}
