import { expect, it } from "vitest";
import { foldFrames, parseFrame, stackFrames } from "./call-stack";

it.each([
  ["train.py(12): step", "train.py", 12, "step"],
  ["/home/me/my net/model.py(7): <lambda>", "/home/me/my net/model.py", 7, "<lambda>"],
  ['File "/home/me/train.py", line 12, in step', "/home/me/train.py", 12, "step"],
  ["src/train.py:12 in step", "src/train.py", 12, "step"],
  ["C:\\net\\train.py(3): main", "C:/net/train.py", 3, "main"],
])("the file, line and function of %s are read", (text, file, line, name) => {
  expect(parseFrame(text)).toEqual({ text, file, line, name, own: true });
});

it.each([
  "torch/nn/modules/module.py(1051): _call_impl",
  "/usr/lib/python3.11/runpy.py(88): run",
  "threading.py(9): run",
])("%s is a frame of a library", (text) => {
  expect(parseFrame(text).own).toBe(false);
});

it("a frame without a file is neither own nor of a library", () => {
  expect(parseFrame("nn.Module: Linear_0")).toMatchObject({ file: "", own: false });
  expect(parseFrame("<built-in method linear>")).toMatchObject({ file: "", own: false });
});

it("frames of libraries that follow each other are one part", () => {
  const frames = stackFrames("torch/a.py(1): f;torch/b.py(2): g;net.py(3): h;torch/c.py(4): i;main.py(5): j").map(
    parseFrame,
  );
  expect(foldFrames(frames).map((part) => part.map(({ line }) => line))).toEqual([[1, 2], [3], [4], [5]]);
});
