// Changes of a replay as sentences: `kernel[gemm]*0.5` is "Kernel gemm takes 50 % of its time".
import { t } from "../locales";
import { partsOfChange } from "./short-change";

const SYNTAX = /^(\w+)(?:\[(name~)?(.+)\])?(?:\*(\d+(?:\.\d+)?)|=(\w+))$/;
const ACTIONS: Readonly<Record<string, string>> = {
  "dataloader=0": "no_loading",
  "sync=remove": "no_sync",
  "copies=async": "async_copies",
  "copies=pinned": "pinned_copies",
};
const TARGETS: ReadonlySet<string> = new Set([
  "kernel",
  "collective",
  "copies",
  "gpu",
  "operator",
  "host",
  "dataloader",
  "launch",
]);

/** Return one or more changes as sentences; a change that is not understood stays as it is. */
export function changeText(text: string): string {
  return partsOfChange(text).map(partText).join(t("idle.says.and"));
}

function partText(part: string): string {
  const action = ACTIONS[part];
  if (action) return t(`idle.says.${action}`);
  const [, target = "", partial, name, factor, word] = SYNTAX.exec(part) ?? [];
  if (target === "rank" && word === "median")
    return name === "*" ? t("idle.says.all_ranks") : t("idle.says.one_rank", { rank: name ?? "" });
  if (!TARGETS.has(target) || (factor === undefined && word !== "0")) return part;
  const form = partial ? "names_with" : target === "operator" ? "named_operator" : "named";
  const what = name
    ? t(`idle.says.${form}`, { kind: t(`idle.says.kind.${target}`), name })
    : t(`idle.says.all.${target}`);
  const ratio = word === "0" ? 0 : Number(factor);
  return ratio === 0
    ? t("idle.says.none", { what })
    : t("idle.says.part", { what, ratio: `${Number((100 * ratio).toPrecision(3))} %` });
}
