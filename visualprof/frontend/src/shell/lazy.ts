import { defineAsyncComponent, type Component } from "vue";
import { SHARED_TEXTS, setLanguage } from "../locales";
import { language } from "../state";

/** Return a component that most first pages do not need; its texts are loaded with it. */
export function lazyComponent(load: () => Promise<{ default: Component }>): Component {
  return defineAsyncComponent(async () => {
    await setLanguage(language.value, SHARED_TEXTS);
    return load();
  });
}
