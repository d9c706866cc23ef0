import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import vue from "@vitejs/plugin-vue";
import { loadEnv, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

/**
 * vue-i18n imports all of Vue to look for one function, which keeps the half of Vue that nothing uses (17 kB gzipped),
 * and a compiler of its message syntax (6 kB), of which the locales use two rules (src/locales/index.ts).
 */
const slim_i18n: Plugin = {
  name: "slim-i18n",
  transform(code, id) {
    if (!id.includes("/vue-i18n/dist/")) return null;
    const vue = "import { getCurrentInstance as instance } from 'vue'; const Vue = { getCurrentInstance: instance };";
    return code.replace("import * as Vue from 'vue';", vue).replace("registerMessageCompiler(compile);", "");
  },
};

/** Words of the first page: `en.json?early` is these sections of `en.json`, `en.json?late` the others. */
const EARLY = new Set(["page", "shell", "state", "no_data", "framework", "severity", "device_type", "category", "chart", "table", "kind", "overview", "column", "finding"]);

const split_locales: Plugin = {
  name: "split-locales",
  async load(id) {
    const [, file, half] = /^(.*\.json)\?(early|late)$/.exec(id) ?? [];
    if (!file) return null;
    const sections = Object.entries(JSON.parse(await readFile(file, "utf8")) as Record<string, object>);
    const words = Object.fromEntries(sections.filter(([name]) => EARLY.has(name) === (half === "early")));
    return { code: `export default ${JSON.stringify(words)}`, moduleType: "js" };
  },
};

/** Beside each script and style sheet its packed form for browsers that read Brotli, 15 % smaller than gzip (visualprof/server/spa.py). */
const brotli: Plugin = {
  name: "brotli",
  async writeBundle({ dir = "" }, bundle) {
    for (const file of Object.keys(bundle).filter((name) => /\.(js|css)$/.test(name))) {
      const path = join(dir, file);
      await writeFile(`${path}.br`, brotliCompressSync(await readFile(path)));
    }
  },
};

/** What a report holds no answers for is no part of its page. */
const pages_of_report: Plugin = {
  name: "pages-of-report",
  enforce: "pre",
  transform(code, id) {
    return id.endsWith("/src/router.ts") ? code.replace('"./pages/*/page.vue"', '["./pages/*/page.vue", "!./pages/{account,agents,cases,evaluation,graph,people,run,trend}/page.vue"]') : null;
  },
};

/** The page again as one script and one style sheet, which visualprof/server/report.py puts into a file with what it shows. */
const REPORT = {
  emptyOutDir: false,
  copyPublicDir: false,
  cssCodeSplit: false,
  rolldownOptions: {
    input: "src/report/main.ts",
    output: { codeSplitting: false, entryFileNames: "report.js", assetFileNames: "report[extname]" },
  },
} as const;

/** The page in few files: what every page needs, what draws, and one for each page (tests/e2e/test_page_weight.py). */
const GROUPS = [
  { name: "shared", test: /node_modules\/(@vue|vue|vue-router|vue-i18n|@intlify|@tanstack)\/|src\/(api|charts\/(?!engine|picture)|components\/(?!drop-zone|password-field|what-if)|lib\/(?!ansi|server)|locales\/\w+\.ts|router|shell\/(?!empty-state|help-dialog|log-in|session-dialog|person-menu|share-run|make-report|notice-bell|link-menu|live-|step-times)|state|styles|app\.vue)|vite\/preload-helper|rolldown\/runtime/, priority: 1 },
  // Only what changes something has use for these.
  { name: "acts", test: /src\/(components\/(drop-zone|password-field)|uploads\/)/ },
  { name: "engine", test: /src\/charts\/engine\.ts/ },
];

export default defineConfig(({ mode }) => ({
  // The dashboard may be served below any path, so every asset address is relative.
  base: "./",
  plugins: [vue(), slim_i18n, split_locales, mode === "report" ? pages_of_report : brotli],
  define: {
    __VUE_OPTIONS_API__: false,
    __VUE_I18N_FULL_INSTALL__: false,
    __VUE_I18N_LEGACY_API__: false,
    __INTLIFY_PROD_DEVTOOLS__: false,
  },
  build: {
    target: "es2022",
    license: mode === "report" ? false : { fileName: "third-party-licenses.txt" },
    // The server's content policy refuses inline scripts, and data: fonts buy nothing.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // ECharts for the first page is one lazy chunk of 525 kB.
    chunkSizeWarningLimit: 600,
    rolldownOptions: {
      output: {
        codeSplitting: { groups: GROUPS },
        chunkFileNames: ({ facadeModuleId }) => `assets/${/pages\/(\w+)\/page\.vue/.exec(facadeModuleId ?? "")?.[1] ?? "[name]"}-[hash].js`,
      },
    },
    ...(mode === "report" ? REPORT : {}),
  },
  // The server compares the page's origin with Host.
  server: { proxy: { "/api": { target: `http://127.0.0.1:${loadEnv(mode, ".", "VISUALPROF_").VISUALPROF_PORT ?? "8040"}`, changeOrigin: false } } },
  // One environment for all files of a worker: 3 s in place of 10. A page is loaded within a test, by a machine that may be busy.
  test: { environment: "happy-dom", include: ["src/**/*.test.ts"], setupFiles: ["tests/offline.ts"], isolate: false, testTimeout: 30_000 },
}));
