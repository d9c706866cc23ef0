import { nextTick, shallowRef } from "vue";
import { expect, it } from "vitest";
import type { Table } from "../../api/model";
import { useEmptyColumns } from "./empty-columns";

function table(flops: (number | null)[], totalRows: number): Table {
  return {
    columns: { name: flops.map(() => "aten::mm"), flops },
    total_rows: totalRows,
    matching_rows: flops.length === 1 ? 1 : totalRows,
    offset: 0,
  };
}

it("keeps the result while rows are sorted or searched", async () => {
  const answer = shallowRef<Table | null>(null);
  const empty = useEmptyColumns(answer, () => "file");
  answer.value = table([1, null], 800);
  await nextTick();
  answer.value = table([null], 800);
  await nextTick();
  expect([...empty.value]).toEqual([]);
});

it("determines empty columns again after a search is cleared", async () => {
  const answer = shallowRef<Table | null>(null);
  const empty = useEmptyColumns(answer, () => "file");
  answer.value = table([null], 800);
  await nextTick();
  expect([...empty.value]).toEqual(["flops"]);
  answer.value = table([null, 2], 800);
  await nextTick();
  expect([...empty.value]).toEqual([]);
});
