/** A block of a server-sent event stream. A block without `data` only updates the last event id and the pause. */
export interface Block {
  id?: string;
  /** Pause before the next connection, in milliseconds. */
  retry?: number;
  event?: string;
  data?: string;
}

/** Incremental parser of server-sent events. Chunks may be split anywhere, even inside a character. */
export class EventStreamParser {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #block: Block = {};

  /** Adds a chunk and returns the blocks that it completes. */
  push(bytes: Uint8Array): Block[] {
    const blocks: Block[] = [];
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    for (;;) {
      const end = this.#rest.search(/[\r\n]/);
      if (end < 0) break;
      // A carriage return at the end of the chunk may be the first half of CRLF.
      if (this.#rest[end] === "\r" && end + 1 === this.#rest.length) break;
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + (this.#rest.startsWith("\r\n", end) ? 2 : 1));
      const block = this.#line(line);
      if (block) blocks.push(block);
    }
    return blocks;
  }

  #line(line: string): Block | undefined {
    if (line === "") {
      const block = this.#block;
      this.#block = {};
      return Object.keys(block).length > 0 ? block : undefined;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#block.data = this.#block.data === undefined ? value : `${this.#block.data}\n${value}`;
    else if (field === "event") this.#block.event = value;
    else if (field === "retry" && /^[0-9]+$/.test(value)) this.#block.retry = Number(value);
    else if (field === "id" && !value.includes("\0")) this.#block.id = value;
    return undefined;
  }
}
