import { createApp, h, nextTick, ref } from "vue";
import { beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { ALL_TEXTS, setLanguage } from "../../locales";
import Editor from "./editor.vue";
import { sampleColumn, sampleSchema } from "./sample-schema";
import type { ErrorPlace } from "./sql";

const schema = sampleSchema([sampleColumn("dur", { definition: "Duration." })]);

const sql = ref("");
const place = ref<ErrorPlace | null>(null);
const run = vi.fn();
let host: HTMLElement;

const area = () => host.querySelector("textarea") as HTMLTextAreaElement;
const options = () => [...host.querySelectorAll("[role=option] .name")].map((option) => option.textContent);

async function type(text: string): Promise<void> {
  area().value = text;
  area().setSelectionRange(text.length, text.length);
  area().dispatchEvent(new Event("input", { bubbles: true }));
  await nextTick();
  await nextTick();
}

async function press(key: string, more: KeyboardEventInit = {}): Promise<KeyboardEvent> {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
  area().dispatchEvent(event);
  await nextTick();
  await nextTick();
  return event;
}

describe("the editor", () => {
  beforeAll(() => setLanguage("en", ALL_TEXTS));
  beforeEach(() => {
    sql.value = "";
    place.value = null;
    run.mockClear();
    host = document.body.appendChild(document.createElement("div"));
    const render = () =>
      h(Editor, {
        modelValue: sql.value,
        schema,
        place: place.value,
        onRun: run,
        "onUpdate:modelValue": (text: string) => (sql.value = text),
      });
    createApp({ render }).mount(host);
  });

  it("completes the chosen name", async () => {
    await type("SELECT d");
    expect(options()[0]).toBe("dur");
    expect(host.querySelector("[role=option]")?.textContent).toContain("Duration.");
    expect(area().getAttribute("aria-activedescendant")).toBe(host.querySelector("[aria-selected=true]")?.id);
    expect((await press("Enter")).defaultPrevented).toBe(true);
    expect(sql.value).toBe("SELECT dur");
    expect(options()).toEqual([]);
  });

  it("moves through the list in a circle", async () => {
    await type("SELECT d");
    const names = options();
    await press("ArrowUp");
    expect(host.querySelector("[aria-selected=true] .name")?.textContent).toBe(names.at(-1));
    await press("ArrowDown");
    await press("Tab");
    expect(sql.value).toBe("SELECT dur");
  });

  it("completes keywords in the case of the word", async () => {
    await type("sele");
    await press("Tab");
    expect(sql.value).toBe("select");
  });

  it("adds a line after a complete word", async () => {
    await type("SELECT as");
    expect(options()).toContain("AS");
    expect((await press("Enter")).defaultPrevented).toBe(false);
  });

  it("lists completions on request, and closes the list before anything else", async () => {
    await type("SELECT * FROM ");
    expect(options()).toEqual([]);
    await press(" ", { ctrlKey: true });
    expect(options()).toEqual(["kernel"]);
    const outside = vi.fn();
    host.addEventListener("keydown", outside);
    await press("Escape");
    expect(options()).toEqual([]);
    expect(outside).not.toHaveBeenCalled();
    await press("Escape");
    expect(outside).toHaveBeenCalledOnce();
  });

  it("runs the statement by Ctrl+Enter", async () => {
    await type("SELECT d");
    await press("Enter", { ctrlKey: true });
    expect(run).toHaveBeenCalledOnce();
    expect(options()).toEqual([]);
  });

  it("marks the place of an error", async () => {
    sql.value = "SELECT nme FROM kernel";
    place.value = { line: 1, column: 8, start: 7, end: 10 };
    await nextTick();
    expect(host.querySelector("mark")?.textContent).toBe("nme");
  });

  it("shows the same text that it edits", async () => {
    await type("SELECT 'a' -- b\n, 1");
    expect(host.querySelector("pre")?.textContent).toBe("SELECT 'a' -- b\n, 1 ");
  });
});
