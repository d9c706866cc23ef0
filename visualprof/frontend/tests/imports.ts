// The sources of the web UI and their imports, for tests of the architecture.
export const sources: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(
    import.meta.glob<string>(["../src/**/*.{ts,vue}", "!../src/**/*.test.ts"], {
      query: "?raw",
      import: "default",
      eager: true,
    }),
  ).map(([path, text]) => [path.replace("../", ""), text]),
);

function resolve(from: string, path: string): string | undefined {
  const parts = from.split("/").slice(0, -1);
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  return ["", ".ts", ".vue", "/index.ts"].map((end) => parts.join("/") + end).find((name) => name in sources);
}

const STATIC = /^(?:import|export)\b[^;]*?from "(\.[^"]*)"/gm;
const ALL = /(?:\bfrom|\bimport)[ (]"(\.[^"]*)"/g;

/** Return the files that each file imports, with or without `import("...")`. */
export function importGraph(imports: "static" | "all" = "all"): ReadonlyMap<string, readonly string[]> {
  const pattern = imports === "static" ? STATIC : ALL;
  return new Map(
    Object.entries(sources).map(([name, text]) => [
      name,
      [...text.matchAll(pattern)].flatMap(([, path = ""]) => resolve(name, path) ?? []),
    ]),
  );
}

/** Return the file and all files that it imports, directly or not. */
export function reachable(
  graph: ReadonlyMap<string, readonly string[]>,
  entry: string,
  skipped: (path: string) => boolean,
): string[] {
  const visited = new Set<string>();
  const visit = (path: string) => {
    if (visited.has(path) || skipped(path)) return;
    visited.add(path);
    (graph.get(path) ?? []).forEach(visit);
  };
  visit(entry);
  return [...visited];
}
