import { expect, test } from "vitest";
import { codeIn } from "./code.ts";

test.each([
  ["600424", "600424"],
  ["600 424", "600424"],
  [" 600-424\n", "600424"],
  ["6 0 0 4 2 4", "600424"],
  ["600 424", "600424"],
  ["Your Matchday code is 600 424. It is valid for 5 minutes.", "600424"],
  ["5 minutes left: 600424", "600424"],
  ["٦٠٠٤٢٤", "600424"],
  ["６００４２４", "600424"],
  ["60", "60"],
  ["6004245", "600424"],
  ["no code", ""],
])("code in %j is %j", (text, code) => expect(codeIn(text)).toBe(code));
