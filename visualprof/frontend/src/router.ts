import { speak } from "./locales";
import { language } from "./state/preferences";
import { createRouter, createWebHashHistory, type RouteRecordRaw } from "vue-router";

// A page is one folder in pages/; its name is the id of the view it shows. Nothing else registers it.
const files = import.meta.glob<{ default: object }>("./pages/*/page.vue");
const id_of = (path: string) => path.split("/").at(-2) as string;

export const page_ids = Object.keys(files).map(id_of);

const routes: RouteRecordRaw[] = Object.entries(files).map(([path, load]) => {
  const id = id_of(path);
  return { path: `/${id}`, name: id, component: load };
});

export const router = createRouter({
  // The hash keeps the state out of the server's reach: one static index.html serves every address.
  history: createWebHashHistory(),
  routes: [
    ...routes,
    { path: "/:view", component: () => import("./pages/view.vue"), props: true },
    { path: "/:rest(.*)*", redirect: (to) => ({ path: "/overview", query: to.query }) },
  ],
});

// It does without the words of the other pages, and without those that say what a number means.
const FIRST = "overview";
router.beforeResolve(async (to) => (to.name === FIRST ? undefined : await speak(language.value, true)));
