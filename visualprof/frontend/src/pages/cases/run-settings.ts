// What somebody typed to run a case, as settings and as a command.
import { serverOption } from "../../lib/server-option";

export interface ParsedSettings {
  settings: Record<string, string>;
  /** What is not of the form key=value; "" when all is. */
  invalid: string;
}

/** `batch_size=8 repeat=3`; a value with spaces stands in quotes: `flops="2 * 4e9"`. */
export function parseSettings(text: string): ParsedSettings {
  const settings: Record<string, string> = {};
  for (const part of text.match(/(?:"[^"]*"|[^\s"])+/g) ?? []) {
    const [, key, value] = /^([A-Za-z]\w*)=(.+)$/s.exec(part) ?? [];
    if (key === undefined || value === undefined) return { settings, invalid: part };
    settings[key] = value.replaceAll('"', "");
  }
  return { settings, invalid: "" };
}

export interface CaseRequest {
  name: string;
  framework: string;
  vendor: string;
  compilers: readonly string[];
  settings: Record<string, string>;
  machines: readonly string[];
  timeout: string;
  stepTimeout: string;
}

const quoted = (text: string) => (/^[\w.,=:/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** The command that does the same. */
export function runCommand(wish: CaseRequest): string {
  const parts: [string, string][] = [
    ["--framework", wish.framework],
    ["--vendor", wish.vendor === "cpu" ? "" : wish.vendor],
    wish.compilers.length > 1
      ? ["--matrix", `compiler=${wish.compilers.join(",")}`]
      : ["--compiler", wish.compilers[0] ?? ""],
    ...Object.entries(wish.settings).map(([key, value]): [string, string] => ["--set", `${key}=${value}`]),
    ["--timeout", wish.timeout === "3600" ? "" : wish.timeout],
    ["--step-timeout", wish.stepTimeout],
    ["--agent", wish.machines.join(",")],
  ];
  const options = parts.filter(([, value]) => value !== "").map(([flag, value]) => ` ${flag} ${quoted(String(value))}`);
  return `visualprof case run ${quoted(wish.name)}${options.join("")}${wish.machines.length > 0 ? serverOption : ""}`;
}
