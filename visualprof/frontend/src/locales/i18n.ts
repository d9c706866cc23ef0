import { createI18n, type MessageContext } from "vue-i18n";
import { EARLY, LATE, type Language, type Messages } from "./languages";

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

const learned = new Map<() => unknown, Promise<void>>();
let needs_all = false;
let spoken_last: Language | null = null;

async function learn(language: Language, load: () => Promise<Messages>): Promise<void> {
  i18n.global.mergeLocaleMessage(language, await load());
}

/** The locale's words are fetched when it is first spoken, those of some pages when one of them opens. */
export async function speak(language: Language, all = needs_all): Promise<void> {
  needs_all ||= all;
  spoken_last = language;
  const halves = [EARLY, ...(needs_all ? [LATE] : [])].flatMap((files) => files[`./${language}.json`] ?? []);
  for (const load of halves) if (!learned.has(load)) learned.set(load, learn(language, load));
  await Promise.all(halves.map((load) => learned.get(load)));
  // Words of the language before may come later than those of this one.
  if (language !== spoken_last) return;
  i18n.global.locale.value = language;
  document.documentElement.lang = i18n.global.t("shell.language_tag");
}
