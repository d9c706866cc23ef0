import { createApp, watch } from "vue";
import App from "./app.vue";
import { vTip } from "./components/tooltip";
import { SHARED_TEXTS, setLanguage } from "./locales";
import { router } from "./router";
import { language } from "./state/preferences";
import "./styles/tokens.css";
import "./styles/base.css";

/** Show the web UI. Its pages are added before (`addPages`). */
export async function start(): Promise<void> {
  watch(language, (newLanguage) => void setLanguage(newLanguage));
  // Tooltips contain the definitions of metrics.
  for (const gesture of ["pointermove", "keydown"])
    addEventListener(gesture, () => void setLanguage(language.value, SHARED_TEXTS), { once: true });

  const app = createApp(App).use(router).directive("tip", vTip);
  // The first frame already has the right language and page; the shell then completes the address.
  await Promise.all([setLanguage(language.value), router.isReady()]);
  app.mount("#app");
}
