import "./api/session"; // first: it takes the token out of the address
import { createApp, watch } from "vue";
import App from "./app.vue";
import { vTip } from "./components/tip";
import { speak } from "./locales";
import { router } from "./router";
import { language } from "./state/preferences";
import "./styles/tokens.css";
import "./styles/base.css";

watch(language, (wanted) => void speak(wanted));
// What a number means is read by whoever points at it.
for (const gesture of ["pointermove", "keydown"]) addEventListener(gesture, () => void speak(language.value, true), { once: true });

const app = createApp(App).use(router).directive("tip", vTip);

// The first frame is already in the right language and on the right page: the shell adds to the address.
void Promise.all([speak(language.value), router.isReady()]).then(() => app.mount("#app"));
