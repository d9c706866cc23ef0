import { createRouter, createWebHashHistory, type RouteRecordRaw } from "vue-router";
import { learn_page } from "./locales";

// A page is one folder in pages/; its name is the id of the view it shows. Nothing else registers it.
const files = import.meta.glob<{ default: object }>("./pages/*/page.vue");
const id_of = (path: string) => path.split("/").at(-2) as string;

export const page_ids = Object.keys(files).map(id_of);

const routes: RouteRecordRaw[] = Object.entries(files).map(([path, load]) => {
  const id = id_of(path);
  return { path: `/${id}`, name: id, component: async () => (await Promise.all([load(), learn_page(id)]))[0] };
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
