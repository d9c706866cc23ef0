import type { Pages } from "../router";

/** A page is one folder with a `page.vue`; the folder's name is the id of the view it shows. Nothing else registers it. */
export const PAGES: Pages = import.meta.glob<{ default: object }>("./*/page.vue");
