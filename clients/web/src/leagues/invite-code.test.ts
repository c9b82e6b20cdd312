import { expect, test } from "vitest";
import { codeIn, formatCode, isCode } from "./invite-code.ts";

test("extracts the code from typed and pasted text", () => {
  for (const text of [
    "K7MPQ2RS",
    " k7mp-q2rs ",
    "K7MP Q2RS",
    "K7MP–Q2RS",
    "https://app.example.org/join/K7MPQ2RS",
    "Join my league! https://app.example.org/join/k7mp-q2rs?utm=1 See you",
    "https://app.example.org/#/join/K7MP%20Q2RS/",
  ]) {
    expect(codeIn(text), text).toBe("K7MPQ2RS");
    expect(isCode(codeIn(text))).toBe(true);
  }
});

test("recognises text that cannot be a code", () => {
  for (const text of ["", "K7MPQ2R", "K7MPQ2RSS", "K7MPQ2R0", "IK7MPQ2R"])
    expect(isCode(codeIn(text)), text).toBe(false);
});

test("codes are shown in two groups", () => {
  expect(formatCode("K7MPQ2RS")).toBe("K7MP-Q2RS");
  expect(formatCode("K7M")).toBe("K7M");
});
