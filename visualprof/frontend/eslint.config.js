import js from "@eslint/js";
import vue from "eslint-plugin-vue";
import ts from "typescript-eslint";
import vueParser from "vue-eslint-parser";

export default ts.config(
  { ignores: ["dist/**", "node_modules/**", "src/api/types.ts"] },
  js.configs.recommended,
  ...ts.configs.strict,
  ...vue.configs["flat/recommended"],
  {
    files: ["{src,tests}/**/*.{ts,vue}"],
    languageOptions: {
      parser: vueParser,
      parserOptions: { parser: ts.parser, sourceType: "module" },
    },
    rules: {
      // Types are vue-tsc's work; it knows the DOM names, this rule does not.
      "no-undef": "off",
      "max-lines": ["error", { max: 250, skipBlankLines: true }],
      "vue/multi-word-component-names": "off",
      // Line shape is not worth a rule: long attributes stay readable on one line.
      "vue/max-attributes-per-line": "off",
      "vue/singleline-html-element-content-newline": "off",
      "vue/html-self-closing": ["warn", { html: { void: "any" } }],
      "vue/require-default-prop": "off",
    },
  },
);
