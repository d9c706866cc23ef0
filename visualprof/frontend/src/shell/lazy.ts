import { defineAsyncComponent, type Component } from "vue";
import { SHARED_TEXTS, speak } from "../locales";
import { language } from "../state";

/** A part that most first pages do without; it comes with the words that they do without. */
export function lazyComponent(load: () => Promise<{ default: Component }>): Component {
  return defineAsyncComponent(async () => {
    await speak(language.value, SHARED_TEXTS);
    return load();
  });
}
