// What a user chose for this browser, not for this page: it lives in localStorage instead of the address.
import { usePreferredDark, useStorage, type RemovableRef } from "@vueuse/core";
import { computed, ref, watchEffect } from "vue";
import type { ThemeName } from "../lib/color";
import { LANGUAGES, type Language } from "../locales";

const THEMES = ["system", "light", "dark"] as const;

/** Remembered under `visualprof.NAME`. Where storage is forbidden, as in an embedded page, it lasts as long as the page. */
export function useStored<T extends string | number | object>(name: string, fallback: T): RemovableRef<T> {
  return useStorage<T>(`visualprof.${name}`, fallback, undefined, { writeDefaults: false, onError: () => undefined });
}

function following<T>(list: readonly T[], one: T): T {
  return list[(list.indexOf(one) + 1) % list.length] ?? one;
}

const stored_theme = useStored<string>("theme", "system");
export const chosen_theme = computed(() => THEMES.find((one) => one === stored_theme.value) ?? "system");
const dark = usePreferredDark();
export const theme = computed<ThemeName>(() =>
  chosen_theme.value === "system" ? (dark.value ? "dark" : "light") : chosen_theme.value,
);

export function next_theme(): void {
  stored_theme.value = following(THEMES, chosen_theme.value);
}

function as_language(value: string | null | undefined): Language | null {
  return LANGUAGES.find((language) => value?.toLowerCase().startsWith(language)) ?? null;
}

const stored_language = useStored<string>("language", "");
/** Of the server's own choice, for those who made none here. */
export const server_language = ref<string | null>(null);
export const language = computed<Language>(
  () =>
    as_language(stored_language.value) ?? as_language(server_language.value) ?? as_language(navigator.language) ?? "en",
);
export const other_language = computed(() => following(LANGUAGES, language.value));

export function next_language(): void {
  stored_language.value = other_language.value;
}

watchEffect(() => (document.documentElement.dataset["theme"] = theme.value));
