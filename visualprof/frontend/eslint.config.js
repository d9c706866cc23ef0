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
      // Properties have the names of the API's JSON keys; a destructured property keeps its name.
      "@typescript-eslint/naming-convention": [
        "error",
        { selector: "default", format: ["camelCase"], leadingUnderscore: "allow" },
        { selector: "import", format: null },
        { selector: "variable", format: ["camelCase", "PascalCase", "UPPER_CASE"] },
        { selector: ["variable", "parameter"], modifiers: ["destructured"], format: null },
        { selector: "typeLike", format: ["PascalCase"] },
        { selector: ["objectLiteralProperty", "typeProperty"], format: null },
        { selector: "objectLiteralMethod", format: null },
      ],
      "object-shorthand": "error",
      "max-lines": ["error", { max: 400, skipBlankLines: true, skipComments: true }],
      "vue/multi-word-component-names": "off",
      "vue/require-default-prop": "off",
    },
  },
  // Prettier decides on the shape of lines.
  prettier,
);
