// Export of frames to the formats of other programs.
import { framePath, type Tree } from "../../charts/flame-tree";

/** One line `caller;function 12` per frame with self time, in ns: the input of flamegraph.pl and compatible tools. */
export function toCollapsedStacks(tree: Tree): string {
  const plain = tree.name.map((name) => name.replace(/;/g, ":").replace(/\s+/g, " "));
  const lines = tree.name.flatMap((_, frame) => {
    const self = Math.round(tree.self[frame] ?? 0);
    return self > 0
      ? [
          `${framePath(tree, frame)
            .map((ancestor) => plain[ancestor])
            .join(";")} ${self}`,
        ]
      : [];
  });
  return `${lines.join("\n")}\n`;
}

/** https://www.speedscope.app/file-format-schema.json */
export function toSpeedscope(tree: Tree, name: string): string {
  const ids = new Map<string, number>();
  for (const name of tree.name) if (!ids.has(name)) ids.set(name, ids.size);
  const framesWithSelf = tree.name.map((_, frame) => frame).filter((frame) => (tree.self[frame] ?? 0) > 0);
  const weights = framesWithSelf.map((frame) => tree.self[frame] ?? 0);
  return JSON.stringify({
    $schema: "https://www.speedscope.app/file-format-schema.json",
    name,
    exporter: "visualprof",
    shared: { frames: [...ids.keys()].map((name) => ({ name })) },
    profiles: [
      {
        type: "sampled",
        name,
        unit: "nanoseconds",
        startValue: 0,
        endValue: weights.reduce((sum, weight) => sum + weight, 0),
        samples: framesWithSelf.map((frame) =>
          framePath(tree, frame).map((ancestor) => ids.get(tree.name[ancestor] ?? "") ?? 0),
        ),
        weights,
      },
    ],
  });
}
