// The frames as files of other programs.
import { pathOf, type Tree } from "./tree";

/** `caller;function 12`, a line for each frame with time of its own, in ns: for flamegraph.pl and all that read its input. */
export function collapsed(tree: Tree): string {
  const plain = tree.name.map((name) => name.replace(/;/g, ":").replace(/\s+/g, " "));
  const lines = tree.name.flatMap((_, frame) => {
    const own = Math.round(tree.self[frame] ?? 0);
    return own > 0
      ? [
          `${pathOf(tree, frame)
            .map((one) => plain[one])
            .join(";")} ${own}`,
        ]
      : [];
  });
  return `${lines.join("\n")}\n`;
}

/** https://www.speedscope.app/file-format-schema.json */
export function speedscope(tree: Tree, name: string): string {
  const ids = new Map<string, number>();
  for (const one of tree.name) if (!ids.has(one)) ids.set(one, ids.size);
  const shown = tree.name.map((_, frame) => frame).filter((frame) => (tree.self[frame] ?? 0) > 0);
  const weights = shown.map((frame) => tree.self[frame] ?? 0);
  return JSON.stringify({
    $schema: "https://www.speedscope.app/file-format-schema.json",
    name,
    exporter: "visualprof",
    shared: { frames: [...ids.keys()].map((one) => ({ name: one })) },
    profiles: [
      {
        type: "sampled",
        name,
        unit: "nanoseconds",
        startValue: 0,
        endValue: weights.reduce((sum, one) => sum + one, 0),
        samples: shown.map((frame) => pathOf(tree, frame).map((one) => ids.get(tree.name[one] ?? "") ?? 0)),
        weights,
      },
    ],
  });
}
