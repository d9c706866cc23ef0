import { afterEach, describe, expect, it } from "vitest";
import { ALL_TEXTS, loadServerMessages, setLanguage } from "../../locales";
import { sampleColumn, sampleSchema } from "./sample-schema";
import { localizeSchema, translateHint } from "./schema-language";

const schema = sampleSchema([
  sampleColumn("occupancy", {
    unit: "0 to 1",
    unit_zh: "0 到 1",
    definition: "Estimated occupancy.",
    definition_zh: "估计的占用率。",
  }),
]);
const hint = "the nearest column is occupancy of kernel: Estimated occupancy.";

describe("the schema", () => {
  afterEach(() => setLanguage("en", ALL_TEXTS));

  it("has the definitions and units of the current language", async () => {
    await setLanguage("en", ALL_TEXTS);
    expect(localizeSchema(schema)).toBe(schema);
    expect(translateHint(hint, schema)).toBe(hint);
    await setLanguage("zh", ALL_TEXTS);
    await loadServerMessages("zh");
    const { tables, functions } = localizeSchema(schema);
    expect(tables[0]?.definition).toBe("核函数。");
    expect(tables[0]?.columns[0]).toMatchObject({ unit: "0 到 1", definition: "估计的占用率。" });
    expect(functions[0]?.definition).toBe("并集。");
    expect(translateHint(hint, schema)).toMatch(/occupancy.*估计的占用率。$/);
    expect(translateHint(hint, schema)).not.toMatch(/nearest|Estimated/);
  });
});
