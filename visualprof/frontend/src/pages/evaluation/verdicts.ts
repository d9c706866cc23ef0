// Verdicts as sentences with their numbers.
import type { Json, Verdict } from "../../api/model";
import { cell_text, exact_text, unit_of } from "../../lib/format";
import { filled } from "../../lib/sentence";
import { text_or } from "../../locales/text";

export interface Said {
  id: string;
  severity: string;
  report: string;
  batch: number | null;
  title: string;
  text: string;
}

function value_text(name: string, value: Json | undefined): string | null {
  if (value === null || value === undefined || typeof value === "object") return null;
  return typeof value === "number" ? cell_text(unit_of(name), value) : cell_text("text", value) || exact_text("text", value);
}

/** `say`: the locale's sentence of a verdict, "" where it has none; the id then stands for itself. */
export function said(verdict: Verdict): Said {
  const evidence = typeof verdict["evidence"] === "object" && verdict["evidence"] !== null && !Array.isArray(verdict["evidence"]) ? verdict["evidence"] : {};
  const id = String(verdict["id"]);
  const batches = Array.isArray(verdict["batches"]) ? verdict["batches"].map(Number) : [];
  const batch = typeof verdict["batch"] === "number" ? verdict["batch"] : null;
  const values = (key: string) => (key === "batch" ? value_text("batch", verdict["batch"]) : key === "batches" ? others(batches, batch) : value_text(key, evidence[key]));
  return {
    id, batch, severity: String(verdict["severity"]), report: String(verdict["report"]),
    title: text_or(`verdict.${id}.title`, id.replaceAll("_", " ")),
    text: filled(text_or(`verdict.${id}.text`, ""), values),
  };
}

/** The other sizes for which it holds, too. */
function others(batches: readonly number[], worst: number | null): string | null {
  const rest = batches.filter((batch) => batch !== worst);
  return rest.length > 0 ? rest.join(", ") : null;
}
