// The two lines of a box: its type and its name.
import { t } from "../../locales";
import type { GraphAnswer } from "../../api/graph";
import type { Graph } from "./graph";

/** Return the last part of a path such as /encoder/layer.0/MatMul_1 or encoder.layer.0.fc. */
export function lastPart(name: string): string {
  const parts = name.split("/").filter(Boolean);
  return parts[parts.length - 1] ?? name;
}

/** Return a sum, as "at least ..." if some of its parts are unknown. */
export function lowerBound(text: string, unknown: number): string {
  return text && unknown > 0 ? t("graph.at_least", { value: text }) : text;
}

const ENDS = new Set(["Input", "Output"]);

export function isEnd(type: string): boolean {
  return ENDS.has(type);
}

export interface Label {
  title: string;
  line: string;
}

export function nodeLabel(answer: GraphAnswer, node: number): Label {
  const type = answer.nodes.type[node] ?? "";
  const name = answer.nodes.name[node] ?? "";
  if (isEnd(type)) return { title: name || type, line: type };
  const part = lastPart(name);
  const title = type.replace(/^.*::/, "") || name;
  // A name that only repeats the type is omitted.
  return { title, line: part === title || part === type ? "" : part };
}

export function groupLabel(graph: Graph, item: number): Label {
  const { groups } = graph.answer;
  const g = item - graph.nodes;
  const above = groups.name[groups.parent[g] ?? -1] ?? "";
  const name = groups.name[g] ?? "";
  const node = graph.nodeOf(item);
  if (node >= 0) {
    const { title, line } = nodeLabel(graph.answer, node);
    return { title: line ? `${title} · ${line}` : title, line: "" };
  }
  // The path of a scope repeats the paths of its parents.
  const shortName = above && name.startsWith(above) ? name.slice(above.length).replace(/^[/.]+/, "") : name;
  return { title: lastPart(shortName || name), line: "" };
}
