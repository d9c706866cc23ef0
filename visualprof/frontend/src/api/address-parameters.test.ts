import { describe, expect, it } from "vitest";
import { takeSecrets } from "./address-parameters";

function taken(address: string): [object, string] {
  const { secrets, clean } = takeSecrets(address);
  return [secrets, clean.href];
}

describe("secrets in the address", () => {
  it("are taken from the fragment", () => {
    expect(taken("http://a/#token=vp_s_1")).toEqual([{ token: "vp_s_1" }, "http://a/"]);
    expect(taken("http://a/p/#/overview?run=x%2Fy&token=t")).toEqual([
      { token: "t" },
      "http://a/p/#/overview?run=x%2Fy",
    ]);
    expect(taken("http://a/#/overview?token=t")).toEqual([{ token: "t" }, "http://a/#/overview"]);
    expect(taken("http://a/#reset=c&email=k@b.c")).toEqual([{ reset: "c", email: "k@b.c" }, "http://a/"]);
  });
  it("are still taken from the query of older links", () => {
    expect(taken("http://a/?token=t#/run?run=x")).toEqual([{ token: "t" }, "http://a/#/run?run=x"]);
    expect(taken("http://a/?link=l&q=1")).toEqual([{ link: "l" }, "http://a/?q=1"]);
  });
  it("leave every other address as it is", () => {
    for (const address of ["http://a/", "http://a/?q=%20#/run?run=a%20b&sort=c+d", "http://a/#/graph"])
      expect(taken(address)).toEqual([{}, address]);
  });
});
