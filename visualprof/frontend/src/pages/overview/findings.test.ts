import { describe, expect, it } from "vitest";
import { mainDoubt } from "./findings";

const remark = (id: Parameters<typeof mainDoubt>[0][number]["id"]) => ({ id, evidence: {} });

describe("mainDoubt", () => {
  it("is the first remark that speaks against having no problem", () => {
    expect(mainDoubt([remark("top_kernels"), remark("uneven_steps"), remark("device_busy")])?.id).toBe("uneven_steps");
  });
  it("is null if the remarks only tell where the time goes", () => {
    expect(mainDoubt([remark("top_operator")])).toBeNull();
    expect(mainDoubt([])).toBeNull();
  });
});
