// What a user chose for this browser, not for this page: it lives in localStorage instead of the address.
import { computed, ref, watchEffect } from "vue";
import type { ThemeName } from "../charts/palette";

export type ThemeChoice = "system" | ThemeName;
export const LANGUAGES = ["en", "zh"] as const;
export type Language = (typeof LANGUAGES)[number];

const THEME_KEY = "visualprof.theme";
const LANGUAGE_KEY = "visualprof.language";

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    // Storage may be forbidden in an embedded page; choices then last as long as the page.
    return null;
  }
}

export function store(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    return;
  }
}

function theme_choice(value: string | null): ThemeChoice {
  return value === "light" || value === "dark" ? value : "system";
}

export function as_language(value: string | null | undefined): Language | null {
  return LANGUAGES.find((language) => value?.toLowerCase().startsWith(language)) ?? null;
}

const system_dark = window.matchMedia("(prefers-color-scheme: dark)");
const system_theme = ref<ThemeName>(system_dark.matches ? "dark" : "light");
system_dark.addEventListener("change", (event) => (system_theme.value = event.matches ? "dark" : "light"));

export const chosen_theme = ref<ThemeChoice>(theme_choice(stored(THEME_KEY)));
export const theme = computed<ThemeName>(() => (chosen_theme.value === "system" ? system_theme.value : chosen_theme.value));

export const stored_language = as_language(stored(LANGUAGE_KEY));
export const language = ref<Language>(stored_language ?? as_language(navigator.language) ?? "en");

const THEMES: readonly ThemeChoice[] = ["system", "light", "dark"];

export function next_theme(): void {
  chosen_theme.value = THEMES[(THEMES.indexOf(chosen_theme.value) + 1) % THEMES.length] ?? "system";
  store(THEME_KEY, chosen_theme.value);
}

export function next_language(): void {
  language.value = language.value === "en" ? "zh" : "en";
  store(LANGUAGE_KEY, language.value);
}

watchEffect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
});
