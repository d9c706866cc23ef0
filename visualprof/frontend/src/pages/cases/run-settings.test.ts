import { expect, test } from "vitest";
import { commandOf, settingsOf } from "./run-settings";

test("settings are typed as keys and values, with quotes around spaces", () => {
  expect(settingsOf(' batch_size=8  flops="2 * 4e9" ')).toEqual({
    settings: { batch_size: "8", flops: "2 * 4e9" },
    wrong: "",
  });
  expect(settingsOf("batch_size 8").wrong).toBe("batch_size");
  expect(settingsOf("repeat=").wrong).toBe("repeat=");
});

test("the command says what differs from what is usual, and quotes what a shell would split", () => {
  const wish = {
    name: "digits",
    framework: "",
    vendor: "cpu",
    compilers: ["openvino"],
    settings: {},
    machines: [],
    timeout: "3600",
    stepTimeout: "",
  };
  expect(commandOf(wish)).toBe("visualprof case run digits --compiler openvino");
  const more = {
    ...wish,
    compilers: ["onnxruntime", "openvino"],
    settings: { flops: "2 * 4" },
    machines: ["lab's", "b"],
    stepTimeout: "60",
  };
  expect(commandOf(more)).toContain(
    `visualprof case run digits --matrix compiler=onnxruntime,openvino --set 'flops=2 * 4' --step-timeout 60 --agent 'lab'\\''s,b'`,
  );
});
