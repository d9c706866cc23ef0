import vue from "@vitejs/plugin-vue";
import { loadEnv } from "vite";
import { defineConfig } from "vitest/config";

export default defineConfig(({ mode }) => ({
  // The dashboard may be served below any path, so every asset address is relative.
  base: "./",
  plugins: [vue()],
  define: {
    __VUE_OPTIONS_API__: false,
    __VUE_I18N_FULL_INSTALL__: false,
    __VUE_I18N_LEGACY_API__: false,
    __INTLIFY_PROD_DEVTOOLS__: false,
  },
  build: {
    target: "es2022",
    // The server's content policy refuses inline scripts, and data: fonts buy nothing.
    assetsInlineLimit: 0,
    // echarts is one lazy chunk of about 600 kB; the first paint does not wait for it.
    chunkSizeWarningLimit: 700,
  },
  server: { proxy: { "/api": `http://127.0.0.1:${loadEnv(mode, ".", "VISUALPROF_").VISUALPROF_PORT ?? "8040"}` } },
  // One environment for all files of a worker: 3 s in place of 10. A page is loaded within a test, by a machine that may be busy.
  test: { environment: "happy-dom", include: ["src/**/*.test.ts"], isolate: false, testTimeout: 30_000 },
}));
