// Search in a model: every word must occur in an item's name, type, attributes, tensor names, shapes or types.
import type { Graph } from "./graph";

const texts = new WeakMap<Graph, string[]>();

function searchTexts(graph: Graph): string[] {
  const cached = texts.get(graph);
  if (cached) return cached;
  const { nodes, groups, edges, values } = graph.answer;
  const out: string[] = nodes.name.map(
    (name, n) => `${nodes.full_name?.[n] ?? name}\n${name}\n${nodes.type[n] ?? ""}\n${nodes.attributes?.[n] ?? ""}`,
  );
  edges.src.forEach((node, e) => {
    const value = edges.value[e] ?? 0;
    out[node] += `\n${values.name[value] ?? ""} ${values.shape[value] ?? ""} ${values.dtype[value] ?? ""}`;
  });
  for (const name of groups.name) out.push(name);
  graph.item.forEach((item, n) => {
    if (item !== n) [out[item], out[n]] = [`${out[item] ?? ""}\n${out[n] ?? ""}`, ""];
  });
  const lowered = out.map((text) => text.toLowerCase());
  texts.set(graph, lowered);
  return lowered;
}

export function searchItems(graph: Graph, search: string): number[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const hits: number[] = [];
  searchTexts(graph).forEach((text, item) => {
    if (item !== graph.root && words.every((word) => text.includes(word))) hits.push(item);
  });
  return hits;
}

/**
 * Return the nodes that a row of a profile refers to: those it measured, or those with exactly that name, or whose name
 * ends in it, or of that type.
 */
export function findByName(graph: Graph, name: string, measured: readonly (string | null)[] = []): number[] {
  const { type } = graph.answer.nodes;
  const names = graph.answer.nodes.full_name ?? graph.answer.nodes.name;
  const nodes = [...names.keys()];
  const rules: ((n: number) => boolean)[] = [
    (n) => measured[n] === name,
    (n) => names[n] === name,
    (n) => (names[n] ?? "").split(/[/.]/).pop() === name || name.endsWith(`/${names[n] ?? ""}`),
    (n) => type[n] === name || type[n] === name.replace(/^.*::/, ""),
  ];
  for (const rule of rules) {
    const hits = nodes.filter(rule);
    if (hits.length > 0) return hits.map((n) => graph.item[n] ?? n);
  }
  return [];
}
