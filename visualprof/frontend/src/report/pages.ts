import type { Pages } from "../router";

/** The pages that a report has data for. */
export const REPORT_PAGES: Pages = import.meta.glob<{ default: object }>([
  "../pages/*/page.vue",
  "!../pages/{account,agents,cases,evaluation,graph,people,run,runs,trend}/page.vue",
]);
