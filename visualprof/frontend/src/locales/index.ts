// Texts in the language of the web UI.
export { keysBelow, locale, setLanguage, t, te } from "./i18n";
export * from "./languages";
export * from "./server-messages";
export * from "./text";
