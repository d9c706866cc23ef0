import { expect, test } from "vitest";
import { parseInline, parseMarkdown, type Node } from "./markdown";

function html(node: Node): string {
  if (typeof node === "string") return node.replace(/</g, "&lt;");
  const attributes = node.attributes?.["href"] ? ` href=${node.attributes["href"]}` : "";
  return `<${node.tag}${attributes}>${node.children.map(html).join("")}</${node.tag}>`;
}
const block = (text: string) => parseMarkdown(text).map(html).join("");
const inline = (text: string) => parseInline(text).map(html).join("");

test("HTML stays text", () => {
  expect(inline("plain *text* <b>x</b> <script>alert(1)</script>")).toBe(
    "plain <em>text</em> &lt;b>x&lt;/b> &lt;script>alert(1)&lt;/script>",
  );
  expect(block("<svg onload=alert(1)>")).toBe("<p>&lt;svg onload=alert(1)></p>");
});

test("only links to web pages are links, and images are links", () => {
  expect(inline("[a](https://b.org)")).toBe("<a href=https://b.org>a</a>");
  expect(inline("[a](javascript:alert)")).toBe("[a](javascript:alert)");
  expect(inline("![a](https://b.org/x.png)")).toBe("<a href=https://b.org/x.png>a</a>");
});

test("blocks are recognized", () => {
  expect(block("# T\n\none\ntwo")).toBe("<p><strong>T</strong></p><p>one\ntwo</p>");
  expect(block("- a\n- b\n  - c")).toBe("<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>");
  expect(block("1. a")).toBe("<ol><li>a</li></ol>");
  expect(block("```py\n*x*\n```")).toBe("<pre><code>*x*</code></pre>");
  expect(block("> q")).toBe("<blockquote><p>q</p></blockquote>");
  expect(block("| a | b |\n|---|---|\n| 1 | **2** |")).toBe(
    "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><strong>2</strong></td></tr></tbody></table>",
  );
});

test("deep nesting and unclosed marks end", () => {
  expect(block(`${">".repeat(200)} a`).length).toBeGreaterThan(0);
  expect(inline("**a *b ~~c")).toBe("**a *b ~~c");
  expect(block("```\nx")).toBe("<pre><code>x</code></pre>");
});
