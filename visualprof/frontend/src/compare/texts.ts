// Texts of a comparison.
import type { DiffAnswer } from "../api/model";
import { formatRatio, formatSigned } from "../lib/format";
import { displayText } from "../lib/text";
import { t, textOr, vocabularyText } from "../locales";

type Step = NonNullable<DiffAnswer["step"]>;
type Note = DiffAnswer["notes"][number];
type Cause = DiffAnswer["causes"][number];

export interface Verdict {
  tone: "worse" | "better" | "";
  heading: string;
  reason: string;
}

/** Return whether the step changed, or why that is unknown. `hasSteps`: the file has step annotations. */
export function judgeStep(step: Step, hasSteps: boolean): Verdict {
  const { low_ns, high_ns, detectable_ratio } = step;
  if (step.significant === null)
    return { tone: "", heading: t("compare.unsure"), reason: t(hasSteps ? "compare.few_steps" : "compare.no_steps") };
  const between =
    low_ns === null || high_ns === null
      ? ""
      : t("compare.between", { low: formatSigned("ns", low_ns), high: formatSigned("ns", high_ns) });
  if (step.attributed_to_load) return { tone: "", heading: t("compare.load"), reason: t("compare.load_reason") };
  if (step.significant)
    return {
      tone: step.median_delta_ns > 0 ? "worse" : "better",
      heading: t(step.median_delta_ns > 0 ? "compare.slower" : "compare.faster"),
      reason: between,
    };
  return {
    tone: "",
    heading: t("compare.noise"),
    reason: detectable_ratio === null ? between : t("compare.detectable", { ratio: formatRatio(detectable_ratio) }),
  };
}

/** Return a cause of a step's change: its share of the mean step before and after, its change, and how certain it is. */
export function causeText(cause: Cause, families = false): string {
  const part = cause.part === null || cause.part === cause.name ? "" : ` (${vocabularyText(cause.part)})`;
  const name = families ? textOr(`family.${cause.name}`, cause.name) : vocabularyText(displayText(cause.name));
  const sentence = t("compare.cause", {
    name: `${name}${part}`,
    base: formatRatio(cause.base_share_ratio),
    new: formatRatio(cause.new_share_ratio),
    delta: formatSigned("ns", cause.delta_ns),
    low: formatSigned("ns", cause.low_ns),
    high: formatSigned("ns", cause.high_ns),
  });
  return cause.certainty === "likely" ? `${sentence} ${t("compare.cause_likely")}` : sentence;
}

/** Return why the two runs may not be comparable. */
export function noteText(note: Note): string {
  const summarize = (text: string) =>
    text === "yes" ? t("compare.so") : note.id === "framework" ? textOr(`framework.${text}`, text) : displayText(text);
  const [base, now] = [note.base, note.new].map((text) =>
    text === null || text === undefined ? t("compare.not_so") : summarize(text),
  );
  return t(`compare.note.${note.id}`, {
    base,
    new: now,
    ratio: note.ratio === null || note.ratio === undefined ? "" : formatSigned("ratio", note.ratio),
  });
}

/** Return the text of a row's cell. Across frameworks, a row is named by its family. */
export function rowWording(column: string, value: string, families = false): string {
  if (column === "name" && families) return textOr(`family.${value}`, value);
  if (column === "status") return textOr(`compare.status.${value}`, value);
  if (column === "what") return textOr(`compare.what.${value}`, value);
  if (column === "name" && value === "host") return t("memory.host");
  return column === "part" || column === "name" ? vocabularyText(value) : value;
}
