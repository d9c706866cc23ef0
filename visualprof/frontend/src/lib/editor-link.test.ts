import { expect, it } from "vitest";
import { DEFAULT_EDITOR, editorLink, localPath } from "./editor-link";

it("an absolute path opens in VS Code by default", () => {
  expect(editorLink(DEFAULT_EDITOR, "/home/me/my net/train.py", 12)).toBe("vscode://file/home/me/my%20net/train.py:12");
  expect(editorLink(DEFAULT_EDITOR, "C:/net/train.py", 3)).toBe("vscode://file/C:/net/train.py:3");
});

it("a relative path needs a source root", () => {
  expect(editorLink(DEFAULT_EDITOR, "train.py", 1)).toBeNull();
  expect(localPath({ ...DEFAULT_EDITOR, to: "/src/net/" }, "pkg/train.py")).toBe("/src/net/pkg/train.py");
});

it("the start of recorded paths is replaced", () => {
  const settings = { ...DEFAULT_EDITOR, from: "/workspace", to: "/home/me/net" };
  expect(localPath(settings, "/workspace/train.py")).toBe("/home/me/net/train.py");
  expect(localPath(settings, "/elsewhere/train.py")).toBe("/elsewhere/train.py");
});

it("other editors have their own pattern", () => {
  const settings = { ...DEFAULT_EDITOR, pattern: "idea://open?file=/{file}&line={line}" };
  expect(editorLink(settings, "/a/b.py", 5)).toBe("idea://open?file=/a/b.py&line=5");
});

it("a pattern without an address, and scripts in names, are not links", () => {
  expect(editorLink({ ...DEFAULT_EDITOR, pattern: "javascript:alert(1)" }, "/a.py", 1)).toBeNull();
  expect(editorLink(DEFAULT_EDITOR, "/a#?&.py", 1)).toBe("vscode://file/a%23%3F%26.py:1");
});
