import { expect, it } from "vitest";
import { abbreviate, escapeHtml, compareNewestFirst, shorten, displayText } from "./text";

it("shortens in the middle and keeps both ends", () => {
  const short = shorten("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_filter1x1_stg8_interior_nchw_nn_v1", 24);
  expect(short).toHaveLength(24);
  expect(short.startsWith("volta_fp16")).toBe(true);
  expect(short.endsWith("nn_v1")).toBe(true);
});

it("shows control characters and changes of direction", () => {
  expect(displayText("a\u0000b\nc\u202egnp.exe\u0085")).toBe("a\u2400b\u240ac\ufffdgnp.exe\ufffd");
  expect(displayText("核函数 <a> \u00a0é")).toBe("核函数 <a> \u00a0é");
});

it("does not change short names", () => expect(shorten("relu", 4)).toBe("relu"));

it("removes the parts that all kernels have in common", () => {
  expect(abbreviate("void cudnn::detail::dgrad_engine<float, 512>(int, int, float const*)", 60)).toBe(
    "cudnn::detail::dgrad_engine<float, 512>",
  );
  expect(abbreviate("Memcpy HtoD (Pageable -> Device)", 60)).toBe("Memcpy HtoD (Pageable -> Device)");
});

it("escapes markup", () => {
  expect(escapeHtml(`<script>alert("x")</script>`)).toBe("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;");
});

it("sorts versions by their parts, newest first", () => {
  expect(["1.9", "1.10"].sort(compareNewestFirst)).toEqual(["1.10", "1.9"]);
});
