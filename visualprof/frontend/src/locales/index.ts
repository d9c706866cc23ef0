import { createI18n, type MessageContext } from "vue-i18n";
import type { Language } from "../state/preferences";

type Messages = { [key: string]: string | Messages };

// One file a language, fetched when it is first spoken.
const files = import.meta.glob<{ default: Messages }>("./*.json");

/** A text has slots, `{name}`; what differs between one and many stands around a bar: "{n} row | {n} rows". */
function compiled(message: unknown) {
  const forms = String(message).split(" | ");
  const filled = (form: string, { named }: MessageContext) => form.replace(/\{(\w+)\}/g, (_slot, name: string) => String(named(name)));
  return (context: MessageContext) => filled(forms.length > 1 ? context.plural(forms) : (forms[0] ?? ""), context);
}

export const i18n = createI18n({
  legacy: false,
  locale: "en",
  fallbackLocale: "en",
  missingWarn: false,
  fallbackWarn: false,
  messageCompiler: compiled,
  messages: {} as Record<string, Messages>,
});

export async function speak(language: Language): Promise<void> {
  if (!i18n.global.availableLocales.includes(language)) {
    const messages = await files[`./${language}.json`]?.();
    if (messages) i18n.global.setLocaleMessage(language, messages.default);
  }
  i18n.global.locale.value = language;
}
