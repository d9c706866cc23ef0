// The layout of a column, derived from its content.
import type { Kind, Kinds } from "../../api/model";
import { isNumber } from "../../lib/format";
import { columnLabels, definition } from "../../locales";

export interface Column {
  name: string;
  label: string;
  hint: string;
  kind: Kind;
  numeric: boolean;
  /** A difference, shown with its sign. */
  signed?: boolean;
  /** Minimum width. */
  widthPx: number;
  /** Maximum width, as CSS. Numbers stay near their names, and only free text fills the remaining width. */
  maxWidth: string;
  /** Whether the user has set the width. */
  fixed?: boolean;
  /** Whether the first click on a column of numbers sorts the smallest first. */
  ascendingFirst?: boolean;
}

const SIGNED = /^delta_|_of_change$/;
const NUMBER_PX = 80;
/** The widest usual values are "99.9 ms" and "1,234 %". */
const NUMBER_WIDTHS: Partial<Record<Kind, number>> = { ns: 74, ratio: 70 };
const SIGNED_PX = 92;
const SECOND_NAME_PX = 150;
/** The padding of a heading and the arrow of its order. */
const HEADING_TOOLS_PX = 26;
const WIDTHS: Partial<Record<Kind, number>> = {
  name: 200,
  text: 160,
  word: 70,
  dims: 84,
  id: 56,
  flag: 60,
  count: 60,
  rate: 94,
  flo: 94,
  flop_rate: 116,
  moment: 140,
};
const NUMBER_ROOM = 1.5;
const FREE = "1fr";

// As wide as their texts: short ones at least, up to a limit; names at most, and wider ones take the free width.
const SIZED_BY_CONTENT = new Set<Kind>(["word", "dims", "id"]);
const MAX_PX = 170;
const MAX_NAME_PX = 640;
/** Icons after a name, and the arrow before it. */
const NAME_TOOLS_PX = 80;

/** Wide characters (CJK) take the width of two Latin ones. */
function textWidth(text: string): number {
  return [...text].reduce(
    (width, character) => width + (character > "\u2e80" ? 13.5 : /\d/.test(character) ? 8.3 : 7.6),
    0,
  );
}

/** Return the width that a heading needs on at most two lines. */
function headingWidth(label: string): number {
  const words = label.split(" ");
  const lines = (count: number) => [words.slice(0, count).join(" "), words.slice(count).join(" ")];
  return Math.min(...words.map((_, count) => Math.max(...lines(count).map(textWidth))));
}

/**
 * Return the columns of a table. `scope` is the table's name in the locales, `texts` returns texts of the first rows.
 * Columns without a declared kind are texts.
 */
export function createColumns(
  names: readonly string[],
  kinds: Kinds = {},
  scope = "",
  texts: (name: string, kind: Kind) => string[] = () => [],
): Column[] {
  const labels = columnLabels(names, kinds, scope);
  const lead = names.find((name) => kinds[name] === "name");
  return names.map((name) => {
    const kind = kinds[name] ?? "text";
    const label = labels[name] ?? name;
    // The first name identifies the row; further names say what it belongs to.
    const width =
      kind === "name" && name !== lead
        ? SECOND_NAME_PX
        : (WIDTHS[kind] ?? (SIGNED.test(name) ? SIGNED_PX : (NUMBER_WIDTHS[kind] ?? NUMBER_PX)));
    const shownWidth =
      SIZED_BY_CONTENT.has(kind) || kind === "name"
        ? Math.max(0, ...new Set(texts(name, kind).map(textWidth))) + 20
        : 0;
    const minWidth = Math.max(
      width,
      headingWidth(label) + HEADING_TOOLS_PX,
      SIZED_BY_CONTENT.has(kind) ? Math.min(MAX_PX, shownWidth) : 0,
    );
    const maxText =
      kind === "name" ? Math.max(minWidth, shownWidth + NAME_TOOLS_PX) : Math.round(minWidth * NUMBER_ROOM);
    return {
      name,
      label,
      hint: definition(name, scope),
      kind,
      numeric: isNumber(kind),
      signed: SIGNED.test(name),
      widthPx: minWidth,
      maxWidth: kind === "text" || maxText > MAX_NAME_PX ? FREE : `${maxText}px`,
    };
  });
}

/**
 * Return the tracks of a grid. Names get the free width first, up to their content, and numbers share the rest. In a
 * table with free text, the text gets the rest.
 */
export function gridTemplate(columns: readonly Column[]): string {
  const hasFreeText = columns.some((column) => column.maxWidth === FREE);
  return columns
    .map(({ widthPx, maxWidth, kind, fixed, numeric }) =>
      hasFreeText && numeric && !fixed
        ? `${widthPx}px`
        : fixed || hasFreeText || SIZED_BY_CONTENT.has(kind) || kind === "name"
          ? `minmax(${widthPx}px, ${maxWidth})`
          : `minmax(${widthPx}px, ${widthPx}fr)`,
    )
    .join(" ");
}

export function minTableWidth(columns: readonly Column[]): number {
  return columns.reduce((sum, column) => sum + column.widthPx, 0);
}

/** Return the width at which all columns have their maximum, as CSS: numbers stay near their names. */
export function maxTableWidth(columns: readonly Column[]): string {
  return columns.some((column) => column.maxWidth === FREE)
    ? "none"
    : `${columns.reduce((sum, column) => sum + parseFloat(column.maxWidth), 0)}px`;
}
