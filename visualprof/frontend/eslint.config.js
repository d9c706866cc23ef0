import js from "@eslint/js";
import prettier from "eslint-config-prettier";
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
      "max-lines": ["error", { max: 400, skipBlankLines: true }],
      "vue/multi-word-component-names": "off",
      "vue/require-default-prop": "off",
    },
  },
  // Prettier decides on the shape of lines.
  prettier,
);
