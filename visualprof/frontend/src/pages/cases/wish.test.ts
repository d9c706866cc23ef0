import { expect, test } from "vitest";
import { command_of, settings_of } from "./wish";

test("settings are typed as keys and values, with quotes around spaces", () => {
  expect(settings_of(' batch_size=8  flops="2 * 4e9" ')).toEqual({
    settings: { batch_size: "8", flops: "2 * 4e9" },
    wrong: "",
  });
  expect(settings_of("batch_size 8").wrong).toBe("batch_size");
  expect(settings_of("repeat=").wrong).toBe("repeat=");
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
    step_timeout: "",
  };
  expect(command_of(wish)).toBe("visualprof case run digits --compiler openvino");
  const more = {
    ...wish,
    compilers: ["onnxruntime", "openvino"],
    settings: { flops: "2 * 4" },
    machines: ["lab's", "b"],
    step_timeout: "60",
  };
  expect(command_of(more)).toContain(
    `visualprof case run digits --matrix compiler=onnxruntime,openvino --set 'flops=2 * 4' --step-timeout 60 --agent 'lab'\\''s,b'`,
  );
});
