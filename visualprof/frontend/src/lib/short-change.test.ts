import { expect, it } from "vitest";
import { shortChange } from "./short-change";

it("changes have the short names of kernels, and keep other names", () => {
  const shortNames = { "void k<float>(int)": "k f32", gemm: "not a kernel" };
  expect(shortChange("kernel[void k<float>(int)]*0.5; operator[gemm]=0", shortNames)).toBe(
    "kernel[k f32]*0.5; operator[gemm]=0",
  );
  expect(shortChange("kernel[name~gemm]*0.5; kernel[other]=0", shortNames)).toBe(
    "kernel[name~gemm]*0.5; kernel[other]=0",
  );
});
