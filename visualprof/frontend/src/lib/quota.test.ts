import { describe, expect, it } from "vitest";
import { formatAmount, parseQuota, quotaInputs } from "./quota";

describe("quotas", () => {
  it("are typed in GB and hours; an empty input means no limit", () => {
    const quota = { jobs_waiting: 0, jobs_running: null, upload_bytes: 1_500_000_000, device_ns: 7_200_000_000_000 };
    const input = { jobs_waiting: "0", jobs_running: "", upload_bytes: "1.5", device_ns: "2" };
    expect(quotaInputs(quota)).toEqual(input);
    expect(parseQuota(input)).toEqual(quota);
  });
  it("are shown with two digits", () => {
    expect(formatAmount("upload_bytes", 19_660_000)).toBe("0.02");
    expect(formatAmount("device_ns", 5_400_000_000_000)).toBe("1.5");
  });
});
