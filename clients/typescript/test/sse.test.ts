import { expect, test } from "vitest";
import { type Block, EventStreamParser } from "../src/sse.js";

const bytes = new TextEncoder();
const whole =
  ': a comment\r\nid: 1-1\r\nevent: event\r\ndata: {"a":1}\r\n\r\nid: 1-2\n\nevent: tally\ndata: first\ndata: zwölf\nunknown: x\n\ndata\n\n';
const wanted: Block[] = [
  { id: "1-1", event: "event", data: '{"a":1}' },
  { id: "1-2" },
  { event: "tally", data: "first\nzwölf" },
  { data: "" },
];

test("parses complete blocks", () => {
  expect(new EventStreamParser().push(bytes.encode(whole))).toEqual(wanted);
});

test("parses chunks that are split inside a character", () => {
  const all = bytes.encode(whole);
  for (let size = 1; size < 20; size += 1) {
    const parser = new EventStreamParser();
    const blocks: Block[] = [];
    for (let at = 0; at < all.length; at += size) blocks.push(...parser.push(all.slice(at, at + size)));
    expect(blocks, `in pieces of ${size}`).toEqual(wanted);
  }
});

test("returns a block only when it is complete", () => {
  const parser = new EventStreamParser();
  expect(parser.push(bytes.encode("id: 1-1\ndata: {}\n"))).toEqual([]);
  expect(parser.push(bytes.encode("\n"))).toEqual([{ id: "1-1", data: "{}" }]);
});

test("reads the pause before the next connection", () => {
  expect(new EventStreamParser().push(bytes.encode("id: 1-1\nretry: 250\n\nretry: soon\n\nretry: 0\n\n"))).toEqual([
    { id: "1-1", retry: 250 },
    { retry: 0 },
  ]);
});

test("removes only the first space after the colon", () => {
  expect(new EventStreamParser().push(bytes.encode("data:  two\n\n"))).toEqual([{ data: " two" }]);
});
