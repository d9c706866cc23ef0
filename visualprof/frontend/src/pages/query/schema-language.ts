// Definitions and units of the schema in the language of the web UI; the server sends them in both languages.
import { locale, translateMessage } from "../../locales";
import type { Schema } from "./completion";

const isChinese = () => locale.value === "zh";

/** Return the schema with the definitions and units of the current language. */
export function localizeSchema(schema: Schema): Schema {
  if (!isChinese()) return schema;
  return {
    ...schema,
    tables: schema.tables.map((table) => ({
      ...table,
      definition: table.definition_zh,
      columns: table.columns.map((column) => ({
        ...column,
        unit: column.unit_zh,
        definition: column.definition_zh,
      })),
    })),
    functions: schema.functions.map((item) => ({ ...item, definition: item.definition_zh })),
  };
}

/** Return the hint of an error in the current language. It may end in the definition of a column. */
export function translateHint(hint: string, schema: Schema | null): string {
  const text = translateMessage(hint);
  const columns = isChinese() && schema ? schema.tables.flatMap((table) => table.columns) : [];
  const column = columns.find(({ definition }) => text.endsWith(`：${definition}`));
  return column ? text.slice(0, -column.definition.length) + column.definition_zh : text;
}
