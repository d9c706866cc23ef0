// Ways to group operators. Runtimes that name operators after the nodes of a model also record their types.
const TYPED_FRAMEWORKS = new Set(["onnxruntime", "openvino", "megengine"]);

export const operatorGroups = (framework: string | null | undefined): string[] =>
  TYPED_FRAMEWORKS.has(framework ?? "") ? ["name", "type", "shape"] : ["name", "shape"];
