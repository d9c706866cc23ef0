import { createMemoryHistory, createRouter, createWebHashHistory } from "vue-router";
import { pageTexts, SHARED_TEXTS, setLanguage } from "./locales";
import { language } from "./state/preferences";

/** By path, `.../pages/ID/page.vue`; ID is the id of the view that the page shows. */
export type Pages = Readonly<Record<string, () => Promise<{ default: object }>>>;

export const FIRST_PAGE = "overview";
/** The address without a page. */
export const START = "start";

export const router = createRouter({
  // The hash keeps the state away from the server: one static index.html serves every address.
  // Inside another page, such as a report in a notebook, there is no address.
  history: /^(https?|file):$/.test(location.protocol) ? createWebHashHistory() : createMemoryHistory(),
  routes: [
    // The list of runs decides where to start; see app.vue.
    { path: "/", name: START, component: { render: () => null } },
    { path: "/:view", component: () => import("./pages/view.vue"), props: true },
    { path: "/:rest(.*)*", redirect: (to) => ({ path: `/${FIRST_PAGE}`, query: to.query }) },
  ],
});

export function addPages(pages: Pages): void {
  for (const [path, component] of Object.entries(pages)) {
    const id = path.split("/").at(-2) as string;
    router.addRoute({ path: `/${id}`, name: id, component });
  }
}

// The first page needs neither the texts of other pages nor the definitions of metrics.
router.beforeResolve(async (to) =>
  to.name === FIRST_PAGE || to.name === START
    ? undefined
    : await setLanguage(language.value, to.name ? pageTexts(String(to.name)) : SHARED_TEXTS),
);
