// Links of a table row: one icon per page.
import type { RouteLocationRaw } from "vue-router";

export interface RowLink {
  page: "trace" | "operator" | "kernel" | "graph" | "snapshot";
  to: RouteLocationRaw;
}

/** Drawn in a 16 × 16 box. */
export const LINK_SIGNS: Record<RowLink["page"], string> = {
  trace: "M2 3.500h7M5 8h8M3 12.500h6",
  operator: "M3 13V7M8 13V3M13 13v-4",
  kernel: "M4 4h8v8H4zM6.500 1.500V4M9.500 1.500V4M6.500 12v2.500M9.500 12v2.500",
  snapshot: "M2 3h12v10H2zM2 9h7M9 3v10",
  graph: "M6 2h4v3H6zM2 11h4v3H2zM10 11h4v3h-4zM8 5v3M4 11V8h8v3",
};
