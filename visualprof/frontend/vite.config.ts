import { copyFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import vue from "@vitejs/plugin-vue";
import { loadEnv, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

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

/** ECharts as one file, which charts in notebooks bring along (visualprof/api/charts.py). */
const echarts: Plugin = {
  name: "echarts",
  async writeBundle({ dir = "" }) {
    await copyFile("node_modules/echarts/dist/echarts.min.js", join(dir, "echarts.min.js"));
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
  {
    name: "shared",
    test: /node_modules\/(@vue|vue|vue-router|@tanstack)\/|src\/(api|charts\/(?!engine|image-export|pareto-|flame-)|components\/(?!stack-frames|source-line|full-name|definition-|drop-zone|password-field|what-if|table\/\w+-list)|lib\/(?!ansi|change-text|operator-groups|parse-bytes|password|quota|call-stack|editor-link|log-errors|server)|locales\/\w+\.ts|router|start|shell\/(?!definition-list|demo-tour|captured-note|span-state|empty-state|help-dialog|log-in|session-dialog|person-menu|share-run|notice-bell|link-menu|live-|step-times)|state\/(?!snapshot-links)|styles|app\.vue|pages\/overview\/plan-rungs)|vite\/preload-helper|rolldown\/runtime/,
    priority: 1,
  },
  // Only what changes something has use for these.
  { name: "acts", test: /src\/(components\/(drop-zone|password-field)|uploads\/)/ },
  // The first page's texts of a language (FIRST_TEXTS in src/locales/languages.ts) in one file.
  {
    name: (id: string) => `texts-${/locales\/(\w+)\//.exec(id)?.[1]}`,
    test: /locales\/\w+\/(shell|tables|overview)\.json/,
  },
  { name: "engine", test: /src\/charts\/engine\.ts/ },
];

export default defineConfig(({ mode }) => ({
  // The dashboard may be served below any path, so every asset address is relative.
  base: "./",
  plugins: [vue(), ...(mode === "report" ? [] : [brotli, echarts])],
  define: { __VUE_OPTIONS_API__: false },
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
        chunkFileNames: ({ facadeModuleId }) =>
          `assets/${/pages\/(\w+)\/page\.vue/.exec(facadeModuleId ?? "")?.[1] ?? "[name]"}-[hash].js`,
      },
    },
    ...(mode === "report" ? REPORT : {}),
  },
  // The server compares the page's origin with Host.
  server: {
    fs: { allow: [".", "../views"] }, // a test reads the names of texts in charts
    proxy: {
      "/api": {
        target: `http://127.0.0.1:${loadEnv(mode, ".", "VISUALPROF_").VISUALPROF_PORT ?? "8040"}`,
        changeOrigin: false,
      },
    },
  },
  // One environment for all files of a worker: 3 s in place of 10. A page is loaded within a test, by a machine that may be busy.
  test: {
    environment: "happy-dom",
    include: ["src/**/*.test.ts"],
    setupFiles: ["tests/offline.ts"],
    isolate: false,
    testTimeout: 30_000,
  },
}));
