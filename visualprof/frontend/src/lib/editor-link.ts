// Links that open a source file in an editor of the user's machine.

export interface EditorSettings {
  /** Address with `{file}` and `{line}`. */
  pattern: string;
  /** Start of the recorded paths that `to` replaces; "" for relative paths. */
  from: string;
  to: string;
}

export const DEFAULT_EDITOR: EditorSettings = { pattern: "vscode://file/{file}:{line}", from: "", to: "" };

const ABSOLUTE = /^(\/|[A-Za-z]:\/)/;
// A recorded path must not become a script.
const SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i;

/** Return the path of a recorded file on this machine, null if it is relative and no source root is set. */
export function localPath(settings: EditorSettings, file: string): string | null {
  const { from, to } = settings;
  if (from && to && file.startsWith(from)) return joinPath(to, file.slice(from.length));
  if (ABSOLUTE.test(file)) return file;
  return !from && to ? joinPath(to, file) : null;
}

/** Return the address that opens a line, null if the path or the pattern is unknown. */
export function editorLink(settings: EditorSettings, file: string, line: number): string | null {
  const path = localPath(settings, file);
  if (path === null || !SCHEME.test(settings.pattern)) return null;
  const encoded = path
    .split("/")
    .map(encodeURIComponent)
    .join("/")
    .replace(/^\//, "")
    .replace(/^([A-Za-z])%3A/, "$1:");
  return settings.pattern.replaceAll("{file}", encoded).replaceAll("{line}", String(line));
}

function joinPath(root: string, rest: string): string {
  return `${root.replace(/[/\\]+$/, "")}/${rest.replace(/^[/\\]+/, "")}`;
}
