// The user's preferences for this browser, kept in localStorage instead of the address.
import { usePreferredDark, useStorage, type RemovableRef } from "@vueuse/core";
import { computed, ref, watchEffect } from "vue";
import type { ThemeName } from "../lib/color";
import { LANGUAGES, type Language } from "../locales";

const THEMES = ["system", "light", "dark"] as const;

/** Store a value under `visualprof.NAME`. If storage is forbidden (embedded pages), it lasts as long as the page. */
export function useStored<T extends string | number | object>(name: string, fallback: T): RemovableRef<T> {
  return useStorage<T>(`visualprof.${name}`, fallback, undefined, { writeDefaults: false, onError: () => undefined });
}

function nextItem<T>(list: readonly T[], current: T): T {
  return list[(list.indexOf(current) + 1) % list.length] ?? current;
}

const storedTheme = useStored<string>("theme", "system");
export const chosenTheme = computed(() => THEMES.find((name) => name === storedTheme.value) ?? "system");
const dark = usePreferredDark();
export const theme = computed<ThemeName>(() =>
  chosenTheme.value === "system" ? (dark.value ? "dark" : "light") : chosenTheme.value,
);

export function nextTheme(): void {
  storedTheme.value = nextItem(THEMES, chosenTheme.value);
}

function parseLanguage(value: string | null | undefined): Language | null {
  return LANGUAGES.find((language) => value?.toLowerCase().startsWith(language)) ?? null;
}

const storedLanguage = useStored<string>("language", "");
/** The server's default, for users without a choice of their own. */
export const serverLanguage = ref<string | null>(null);
export const language = computed<Language>(
  () =>
    parseLanguage(storedLanguage.value) ??
    parseLanguage(serverLanguage.value) ??
    parseLanguage(navigator.language) ??
    "en",
);
export const otherLanguage = computed(() => nextItem(LANGUAGES, language.value));

export function nextLanguage(): void {
  storedLanguage.value = otherLanguage.value;
}

watchEffect(() => (document.documentElement.dataset["theme"] = theme.value));
