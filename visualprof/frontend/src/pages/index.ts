import type { Pages } from "../router";

/** A page is a folder with a `page.vue`. The folder's name is the id of its view; no other registration is needed. */
export const PAGES: Pages = import.meta.glob<{ default: object }>("./*/page.vue");
