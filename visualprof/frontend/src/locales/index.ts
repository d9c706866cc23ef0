import { createI18n } from "vue-i18n";
import type { Language } from "../state/preferences";

type Messages = { [key: string]: string | Messages };

// One file a language, fetched when it is first spoken.
const files = import.meta.glob<{ default: Messages }>("./*.json");

export const i18n = createI18n({
  legacy: false,
  locale: "en",
  fallbackLocale: "en",
  missingWarn: false,
  fallbackWarn: false,
  messages: {} as Record<string, Messages>,
});

export async function speak(language: Language): Promise<void> {
  if (!i18n.global.availableLocales.includes(language)) {
    const messages = await files[`./${language}.json`]?.();
    if (messages) i18n.global.setLocaleMessage(language, messages.default);
  }
  i18n.global.locale.value = language;
}
