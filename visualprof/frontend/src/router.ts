import { createRouter, createWebHashHistory, type RouteRecordRaw } from "vue-router";

// A page is one file in pages/; its base name is the id of the view it shows. Nothing else registers it.
const files = import.meta.glob<{ default: object }>("./pages/*.vue");

export const page_ids = Object.keys(files).map((path) => path.replace(/^.*\/|\.vue$/g, ""));

const routes: RouteRecordRaw[] = Object.entries(files).map(([path, load]) => {
  const id = path.replace(/^.*\/|\.vue$/g, "");
  return { path: `/${id}`, name: id, component: load };
});

export const router = createRouter({
  // The hash keeps the state out of the server's reach: one static index.html serves every address.
  history: createWebHashHistory(),
  routes: [...routes, { path: "/:rest(.*)*", redirect: (to) => ({ path: "/overview", query: to.query }) }],
});
