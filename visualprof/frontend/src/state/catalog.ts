// Which pages there are and in which order: the server's views that have a page here.
import { computed, shallowRef } from "vue";
import { address, get } from "../api/client";
import type { ViewsAnswer } from "../api/model";
import { page_ids } from "../router";
import { span, viewable } from "./selection";

const order = shallowRef<string[]>(["overview", "operator", "kernel"]);

export async function load_catalog(): Promise<void> {
  const answer = await get<ViewsAnswer>(address("views"));
  if (answer) order.value = answer.body.views.map((view) => view.name);
}

// A model needs no run: its page is there as soon as the server is, to show one or to be given one. What makes runs needs none either.
const STANDS_ALONE = new Set(["graph", "run", "evaluation", "agents"]);
// These show nothing of the selected run, so that its selectors would only stand in the way.
const RUNLESS = new Set(["run", "evaluation", "agents"]);

export function stands_alone(id: string): boolean {
  return STANDS_ALONE.has(id);
}

export function has_selectors(id: string): boolean {
  return !RUNLESS.has(id);
}

interface Tab {
  id: string;
  /** False when the selected file has nothing for this page. */
  enabled: boolean;
  /** Begins another group of tabs. */
  apart: boolean;
}

export const tabs = computed<Tab[]>(() =>
  [...new Set([...order.value, ...STANDS_ALONE])]
    .filter((id) => page_ids.includes(id))
    .map((id) => ({ id, enabled: stands_alone(id) || !viewable.value || (span.value?.views.includes(id) ?? true), apart: id === "run" })),
);
