// Families of operators, with one color each in all models and frameworks.
import type { ThemeName } from "../../../lib/color";

export const FAMILIES = [
  "conv",
  "matmul",
  "norm",
  "activation",
  "elementwise",
  "pooling",
  "reshape",
  "sequence",
  "control",
  "io",
  "other",
] as const;
export type Family = (typeof FAMILIES)[number];

const COLORS: Record<Family, readonly [light: string, dark: string]> = {
  conv: ["#2f74d0", "#5a9bf0"],
  matmul: ["#8557c9", "#ab85e8"],
  norm: ["#1f9d8b", "#3cc2ae"],
  activation: ["#d1527a", "#ec7fa0"],
  elementwise: ["#6b9e34", "#8fc257"],
  pooling: ["#3aa3cf", "#62c3ea"],
  reshape: ["#8a93a2", "#8d97a6"],
  sequence: ["#e0872b", "#f0a04f"],
  control: ["#b9493f", "#de7469"],
  io: ["#4d5a6e", "#aab6c8"],
  other: ["#a97c50", "#cba176"],
};

// The first match counts. Names are lower case without domain or namespace.
const RULES: readonly [Family, RegExp][] = [
  [
    "io",
    /^(input|output|placeholder|feed|fetch|host2devicecopy|shareddevicetensor|data|parameter|constant|immutabletensor|get_attr|param_node)/,
  ],
  ["sequence", /(lstm|gru|rnn|attention|rotary|kvcache|sequenceconstruct)/],
  ["conv", /(conv|deform_?conv|convbias|im2col|col2im)/],
  [
    "control",
    /^(if|loop|scan|while|switch|merge|enter|exit|nextiteration|cond|call|partitionedcall|statefulpartitionedcall)$/,
  ],
  ["norm", /(norm|bn$|lrn)/],
  ["pooling", /(pool|upsample|resize|interp|warpperspective|warpaffine|gridsample|roialign|adaptive)/],
  ["matmul", /(matmul|gemm|linear|dense|einsum|mm$|addmm|dot$|inner_?product|fullyconnected|^fc$|quant.*matmul)/],
  [
    "activation",
    /(relu|sigmoid|tanh$|softmax|gelu|silu|swish|mish|hardswish|hardsigmoid|elu$|softplus|erf$|activation|prelu|nonlinear|softsign)/,
  ],
  [
    "reshape",
    /(reshape|transpose|concat|split|slice|squeeze|flatten|gather|scatter|expand|tile$|pad$|permute|view|stack|shape|cast|identity|subtensor|dimshuffle|broadcast|typecvt|axisaddremove|getvarshape|unfold|stride|copy|clone|contiguous|select|index|size$|range|nonzero|onehot|t$|to$)/,
  ],
  [
    "elementwise",
    /(add|sub$|subtract|mul|div|pow|sqrt|exp|log|abs|neg|min|max|mean|sum|prod|reduce|clip|clamp|where|equal|greater|less|not$|and$|or$|floor|ceil|round|mod$|sin|cos|elemwise|elementwise|scale|bias|argmax|topk|cumsum|reciprocal|sign|dropout)/,
  ],
];

const families = new Map<string, Family>();

export function operatorFamily(type: string): Family {
  const stored = families.get(type);
  if (stored) return stored;
  const name = type
    .toLowerCase()
    .replace(/^.*(::|\.|\/)/, "")
    .replace(/^_+/, "");
  const family = RULES.find(([, rule]) => rule.test(name))?.[0] ?? "other";
  families.set(type, family);
  return family;
}

export function familyColor(family: Family, theme: ThemeName): string {
  return COLORS[family][theme === "light" ? 0 : 1];
}
