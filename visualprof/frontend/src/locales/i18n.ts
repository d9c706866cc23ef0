import { createI18n, type MessageContext } from "vue-i18n";
import { FILES, PAGE_FILES, type Language } from "./languages";

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
  messages: {},
});

/** The page speaks one language at a time: everything that shows words takes them from here. */
export const { t, te, locale } = i18n.global;

/** Pages that have words of their own and were opened. */
const pages = new Set<string>();

/** The locale's file is fetched when it is first spoken, those of pages when they are opened. */
export async function speak(language: Language): Promise<void> {
  if (!i18n.global.availableLocales.includes(language)) {
    const messages = await FILES[`./${language}.json`]?.();
    if (messages) i18n.global.setLocaleMessage(language, messages.default);
  }
  await Promise.all([...pages].map((page) => learn(page, language)));
  i18n.global.locale.value = language;
  document.documentElement.lang = i18n.global.t("shell.language_tag");
}

/** Nothing before the language's own file is there: `speak` comes back to it. */
async function learn(page: string, language: Language): Promise<void> {
  if (!i18n.global.availableLocales.includes(language)) return;
  const words = await PAGE_FILES[`../pages/${page}/words/${language}.json`]?.();
  if (words) i18n.global.mergeLocaleMessage(language, words.default);
}

/** Before a page is shown: its own words. */
export async function learn_page(page: string): Promise<void> {
  pages.add(page);
  await learn(page, i18n.global.locale.value);
}
