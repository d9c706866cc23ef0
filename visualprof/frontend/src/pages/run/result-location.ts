// Where to open a result: at its first file that has data for one of these pages.
import type { RouteLocationRaw } from "vue-router";
import type { Run } from "../../api/model";

const PAGES = ["overview", "profile", "trace"] as const;
/** The file of a failed task may only contain CPU counters, which do not explain the failure. */
const PAGES_OF_FAILED: readonly (typeof PAGES)[number][] = ["overview", "profile"];

/**
 * Null until the server has read all files, because the first file that is ready may contain least. Files that nobody
 * has started to read may be in remote storage and are loaded when opened.
 */
export function resultLocation(run: Run | undefined, failed = false): RouteLocationRaw | null {
  if (!run) return null;
  const states = new Set(run.workers.flatMap((worker) => worker.spans.map((span) => span.state)));
  if (states.has("waiting") && states.size === 1 && !failed) return { path: "/overview", query: { run: run.id } };
  if (states.has("waiting") || states.has("parsing")) return null;
  for (const page of failed ? PAGES_OF_FAILED : PAGES) {
    for (const [index, worker] of run.workers.entries()) {
      for (const [number, span] of worker.spans.entries()) {
        if (!span.views.includes(page)) continue;
        // The first worker and span are the defaults, so that the address stays short.
        return {
          path: `/${page}`,
          query: {
            run: run.id,
            ...(index > 0 ? { worker: worker.id } : {}),
            ...(number > 0 ? { worker: worker.id, span: span.id } : {}),
          },
        };
      }
    }
  }
  return null;
}
