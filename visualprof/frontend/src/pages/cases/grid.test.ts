import { expect, test } from "vitest";
import { buildGrid } from "./grid";

const TABLE = {
  run: ["a2", "a1", "b1", "a3", "b2"],
  case: ["net", "net", "bert", "net", "bert"],
  machine: ["lab", "lab", "lab", "gpu7", "gpu7"],
  compiler: ["openvino", "openvino", "onnxruntime", "onnxruntime", null],
  vendor: ["cpu", "cpu", "cpu", "cpu", "cpu"],
  framework: ["pytorch", "pytorch", "pytorch", "pytorch", "pytorch"],
  precision: ["fp32", "fp32", "fp32", "fp32", "fp32"],
  batch_size: [8, 8, 1, 8, 4],
  state: ["succeeded", "succeeded", "succeeded", "succeeded", "failed"],
  core_per_s: [40, 30, 5, 80, null],
  p50_ns: [4, 5, 6, 3, null],
};

test("has one row per case, one column per compiler and machine, and the newest result in each cell", () => {
  const { machines, rows } = buildGrid(TABLE, "core_per_s");
  expect(machines).toEqual([
    { name: "gpu7", compilers: ["", "onnxruntime"] },
    { name: "lab", compilers: ["onnxruntime", "openvino"] },
  ]);
  expect(rows.map((row) => [row.case, row.setup])).toEqual([
    ["bert", [["batch_size", 1]]],
    ["bert", [["batch_size", 4]]],
    ["net", []],
  ]);
  expect(rows[2]?.cells.map((cell) => cell && [cell.run, cell.value, cell.best])).toEqual([
    null,
    ["a3", 80, true],
    null,
    ["a2", 40, false],
  ]);
  expect(rows[1]?.cells[0]).toEqual({ run: "b2", state: "failed", value: null, best: false });
});

test("marks the lowest latency as best, and a single one as neither", () => {
  const { rows } = buildGrid({ ...TABLE, p50_ns: [2, 5, 6, 3, null] }, "p50_ns");
  expect(rows[2]?.cells.map((cell) => cell?.best)).toEqual([undefined, false, undefined, true]);
  expect(rows[0]?.cells.some((cell) => cell?.best)).toBe(false);
});
