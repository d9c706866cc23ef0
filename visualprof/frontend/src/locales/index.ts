// Words in the language of the page.
export { i18n, locale, speak, t, te } from "./i18n";
export * from "./languages";
export * from "./said";
export * from "./text";
