export type HelpTab = "definitions" | "shortcuts";
