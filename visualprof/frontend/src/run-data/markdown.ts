// Parses Markdown of logged texts into a tree of harmless elements. HTML stays text, and images become links.

export interface Element {
  tag: string;
  attributes?: Readonly<Record<string, string>>;
  children: readonly Node[];
}
export type Node = Element | string;

const element = (tag: string, children: readonly Node[], attributes?: Record<string, string>): Element =>
  attributes ? { tag, attributes, children } : { tag, children };

// Bounded repetitions keep the time of a hostile text proportional to its length.
const INLINE =
  /(`{1,3})(.{1,2000}?)\1|!?\[([^\]]{0,500})\]\(([^()\s]{1,2000})(?:\s+"[^"]{0,500}")?\)|\*\*(.{1,2000}?)\*\*|__(.{1,2000}?)__|~~(.{1,2000}?)~~|\*([^*\s](?:[^*]{0,2000}[^*\s])?)\*|\b_([^_]{1,2000})_\b|(https?:\/\/[^\s<>()]{1,2000})/s;
const SAFE_LINK = /^https?:\/\//i;
const MAX_DEPTH = 8;

/** Return the elements of a line of text. */
export function parseInline(text: string, depth = 0): Node[] {
  const nodes: Node[] = [];
  let rest = text;
  while (rest) {
    const match = depth < MAX_DEPTH ? INLINE.exec(rest) : null;
    if (!match) return [...nodes, rest];
    if (match.index > 0) nodes.push(rest.slice(0, match.index));
    nodes.push(inlineElement(match, depth + 1));
    rest = rest.slice(match.index + match[0].length);
  }
  return nodes;
}

function inlineElement(match: RegExpExecArray, depth: number): Node {
  const [whole, , code, label, target, strong, strong2, struck, emphasis, emphasis2, url] = match;
  if (code !== undefined) return element("code", [code]);
  if (label !== undefined && target !== undefined)
    return SAFE_LINK.test(target) ? link(target, parseInline(label || target, depth)) : whole;
  const bold = strong ?? strong2;
  if (bold !== undefined) return element("strong", parseInline(bold, depth));
  if (struck !== undefined) return element("del", parseInline(struck, depth));
  const slanted = emphasis ?? emphasis2;
  if (slanted !== undefined) return element("em", parseInline(slanted, depth));
  return url === undefined ? whole : link(url, [url]);
}

const link = (href: string, children: readonly Node[]) =>
  element("a", children, { href, target: "_blank", rel: "noopener noreferrer nofollow" });

const FENCE = /^\s{0,3}(```+|~~~+)/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^\s{0,3}>\s?/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Return the blocks of a text. */
export function parseMarkdown(text: string, depth = 0): Node[] {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks: Node[] = [];
  let at = 0;
  /** Take lines while they match. */
  const take = (matches: (line: string) => boolean) => {
    const from = at;
    while (at < lines.length && matches(lines[at] ?? "")) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const fence = FENCE.exec(line)?.[1];
    const heading = HEADING.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      at += 1;
      const body = take((candidate) => !candidate.trim().startsWith(fence));
      at += 1;
      blocks.push(element("pre", [element("code", [body.join("\n")])]));
    } else if (heading) {
      at += 1;
      blocks.push(
        element("p", [element("strong", parseInline(heading[2] ?? ""))], { class: `h${heading[1]?.length}` }),
      );
    } else if (RULE.test(line)) {
      at += 1;
      blocks.push(element("hr", []));
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      const body = take((candidate) => QUOTE.test(candidate)).map((quoted) => quoted.replace(QUOTE, ""));
      blocks.push(element("blockquote", parseMarkdown(body.join("\n"), depth + 1)));
    } else if (ITEM.test(line)) {
      const body = take((candidate) => ITEM.test(candidate) || (/^\s{2,}\S/.test(candidate) && !FENCE.test(candidate)));
      blocks.push(parseList(body, depth));
    } else if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "") && (lines[at + 1] ?? "").includes("-")) {
      blocks.push(parseTable(take((candidate) => candidate.includes("|"))));
    } else {
      const first = at;
      const body = take((candidate) => candidate.trim() !== "" && (at === first || !startsBlock(candidate)));
      blocks.push(element("p", parseInline(body.join("\n"))));
    }
  }
  return blocks;
}

const startsBlock = (line: string) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

/** Return a list; more indented lines belong to the item before them. */
function parseList(lines: readonly string[], depth: number): Element {
  const first = ITEM.exec(lines[0] ?? "");
  const indent = first?.[1]?.length ?? 0;
  const items: string[][] = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && (match[1]?.length ?? 0) <= indent) items.push([match[3] ?? ""]);
    else items.at(-1)?.push(line.replace(/^ {1,4}/, ""));
  }
  const children = items.map(([head = "", ...rest]) =>
    element("li", [
      ...parseInline(head),
      ...(rest.length > 0 ? (depth < MAX_DEPTH ? parseMarkdown(rest.join("\n"), depth + 1) : rest) : []),
    ]),
  );
  return element(/\d/.test(first?.[2] ?? "") ? "ol" : "ul", children);
}

function parseTable(lines: readonly string[]): Element {
  const cells = (line: string) =>
    line
      .trim()
      .replace(/^\||\|$/g, "")
      .split("|")
      .map((cell) => parseInline(cell.trim()));
  const [head = "", , ...body] = lines;
  const row = (tag: string, line: string) =>
    element(
      "tr",
      cells(line).map((cell) => element(tag, cell)),
    );
  return element("table", [
    element("thead", [row("th", head)]),
    element(
      "tbody",
      body.map((line) => row("td", line)),
    ),
  ]);
}
