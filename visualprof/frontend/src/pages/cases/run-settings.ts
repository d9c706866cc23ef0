// Convert the user's input for a case run to settings and to a command.
import { serverOption } from "../../lib/server-option";

export interface ParsedSettings {
  settings: Record<string, string>;
  /** The part that is not of the form key=value; "" if all of it is. */
  invalid: string;
}

/** Parse `batch_size=8 repeat=3`. A value with spaces is quoted: `flops="2 * 4e9"`. */
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

/** Return the equivalent command. */
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
