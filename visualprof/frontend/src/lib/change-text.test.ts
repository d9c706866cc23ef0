import { beforeAll, describe, expect, it } from "vitest";
import { ALL_TEXTS, setLanguage } from "../locales";
import { changeText } from "./change-text";

beforeAll(() => setLanguage("en", ALL_TEXTS));

describe("a change as a sentence", () => {
  it("names what takes how much of its time", () => {
    expect(changeText("kernel[ns::gemm<float>]*0.5")).toBe("Kernel ns::gemm<float> takes 50 % of its time");
    expect(changeText("kernel[name~gemm]=0")).toBe("Kernel with “gemm” in its name takes no time");
    expect(changeText("operator[aten::mm]*0.5")).toBe("Operator aten::mm with its device work takes 50 % of its time");
    expect(changeText("gpu*2")).toBe("All device work takes 200 % of its time");
  });

  it("has words of its own for an action", () => {
    expect(changeText("sync=remove; dataloader=0")).toBe(
      "The CPU does not wait for the device; The step does not wait for data",
    );
    expect(changeText("rank[3]=median")).toBe("Rank 3 is as fast as the median rank");
  });

  it("takes names with brackets", () => {
    expect(changeText("kernel[add f32 [int]]*0.5")).toBe("Kernel add f32 [int] takes 50 % of its time");
  });

  it("stays as it is if it is not understood", () => {
    expect(changeText("kernel[gemm")).toBe("kernel[gemm");
  });
});
