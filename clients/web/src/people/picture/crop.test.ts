import { expect, test } from "vitest";
import { fitted, highestZoom, sideOf, wholeCrop } from "./crop.ts";

const wide = { width: 400, height: 200 };

test("first crop is the largest square in the centre", () => {
  const crop = wholeCrop(wide);
  expect(crop).toEqual({ x: 200, y: 100, zoom: 1 });
  expect(sideOf(wide, crop)).toBe(200);
  expect(fitted(wide, crop)).toEqual(crop);
});

test("crop stays inside of the picture", () => {
  expect(fitted(wide, { x: -50, y: 900, zoom: 1 })).toEqual({ x: 100, y: 100, zoom: 1 });
  expect(fitted(wide, { x: 390, y: 10, zoom: 2 })).toEqual({ x: 350, y: 50, zoom: 2 });
});

test("zoom is limited", () => {
  expect(fitted(wide, { x: 200, y: 100, zoom: 0.1 }).zoom).toBe(1);
  expect(fitted(wide, { x: 200, y: 100, zoom: 99 }).zoom).toBe(highestZoom);
});
