// Shows Markdown. The tree is built from elements and texts, never from HTML.
import { defineComponent, h, type VNodeChild } from "vue";
import { parseMarkdown, type Node } from "./markdown";

const render = (node: Node): VNodeChild =>
  typeof node === "string" ? node : h(node.tag, node.attributes ?? {}, node.children.map(render));

export const MarkdownText = defineComponent({
  props: { text: { type: String, required: true } },
  setup: (props) => () => h("div", { class: "markdown" }, parseMarkdown(props.text).map(render)),
});
