import { expect, it } from "vitest";
import { cellRate, distinct, transferMatrix } from "./transfers";

// Two operations of ranks 4 and 6, which are 0 and 1 in their group.
const columns = {
  group: ["dp", "dp", "dp", "tp"],
  link: ["HCCS", "HCCS", "LOCAL", "RDMA"],
  source: [4, 4, 4, null],
  destination: [6, 6, 4, null],
  group_source: [0, 0, 0, 2],
  group_destination: [1, 1, 0, 0],
  bytes: [1000, 3000, 50, 7],
  link_ns: [100, 100, 0, 1],
};

it("a cell sums the operations of its two ranks", () => {
  const { ends, global, cells } = transferMatrix(columns, "dp", "HCCS");
  expect([ends, global]).toEqual([[4, 6], true]);
  expect(cells.map((cell) => cell?.bytes ?? null)).toEqual([null, 4000, null, null]);
  expect(cellRate(cells[1] ?? null)).toBe(2e10);
});

it("the ends are ranks of the group if its members are unknown", () => {
  const { ends, global, cells } = transferMatrix(columns, "tp", "RDMA");
  expect([ends, global]).toEqual([[0, 2], false]);
  expect(cells.map((cell) => cell?.bytes ?? null)).toEqual([null, null, 7, null]);
});

it("a transfer without time has no rate", () => {
  expect(cellRate(transferMatrix(columns, "dp", "LOCAL").cells[0] ?? null)).toBeNull();
  expect(cellRate(null)).toBeNull();
  expect(distinct(columns.link)).toEqual(["HCCS", "LOCAL", "RDMA"]);
});
