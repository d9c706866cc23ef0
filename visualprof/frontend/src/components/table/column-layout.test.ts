// @vitest-environment happy-dom
import { beforeEach, expect, it } from "vitest";
import { nextTick } from "vue";
import { arrangeNames, useColumnLayout } from "./column-layout";
import { gridTemplate, type Column } from "./columns";

const column = (name: string): Column => ({
  name,
  label: name,
  hint: "",
  kind: "count",
  numeric: true,
  widthPx: 80,
  maxWidth: "120px",
});
const columns = ["a", "b", "c"].map(column);
const layoutOf = () =>
  useColumnLayout(
    "test",
    () => columns,
    (name) => name !== "c",
  );
const shownNames = (layout: ReturnType<typeof layoutOf>) => layout.shown.value.map(({ name }) => name);

beforeEach(() => localStorage.clear());

it("a new column follows its predecessor in the stored order", () => {
  expect(arrangeNames(["a", "b", "c", "d"], ["c", "a", "gone"])).toEqual(["c", "d", "a", "b"]);
  expect(arrangeNames(["a", "b"], ["b"])).toEqual(["a", "b"]);
  expect(arrangeNames(["a", "b"], [])).toEqual(["a", "b"]);
});

it("a column is moved, shown and resized, and all of it is remembered", async () => {
  const layout = layoutOf();
  expect(shownNames(layout)).toEqual(["a", "b"]);
  layout.show("c", true);
  layout.move("c", "a");
  layout.resize({ b: 200.4, a: 3 });
  await nextTick();
  const again = layoutOf();
  expect(shownNames(again)).toEqual(["c", "a", "b"]);
  expect(again.shown.value.map(({ widthPx }) => widthPx)).toEqual([80, 40, 200]);
  expect(gridTemplate(again.shown.value)).toBe("minmax(80px, 80fr) minmax(40px, 40px) minmax(200px, 200px)");
});

it("a column moves by visible columns and not beyond the last one", () => {
  const layout = layoutOf();
  expect(layout.moveBy("a", 1)).toBe(1);
  expect(shownNames(layout)).toEqual(["b", "a"]);
  expect(layout.moveBy("a", 1)).toBeNull();
});

it("reset forgets everything", () => {
  const layout = layoutOf();
  expect(layout.isChanged.value).toBe(false);
  layout.move("b", "a");
  layout.resize({ a: 300 });
  layout.show("a", false);
  expect(layout.isChanged.value).toBe(true);
  layout.reset();
  expect(layout.isChanged.value).toBe(false);
  expect(shownNames(layout)).toEqual(["a", "b"]);
});
