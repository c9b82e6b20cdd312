/** Square part of a picture: its centre in pixels, and how far it is zoomed in. With 1, it has the full height or width. */
export interface Crop {
  x: number;
  y: number;
  zoom: number;
}

export interface Size {
  width: number;
  height: number;
}

export const highestZoom = 4;

/** The largest square in the centre. */
export const wholeCrop = ({ width, height }: Size): Crop => ({ x: width / 2, y: height / 2, zoom: 1 });

/** Side of the square in pixels of the picture. */
export const sideOf = ({ width, height }: Size, { zoom }: Crop): number => Math.min(width, height) / zoom;

/** Moves the square back into the picture, and limits its zoom. */
export function fitted(size: Size, crop: Crop): Crop {
  const zoom = between(1, crop.zoom, highestZoom);
  const half = sideOf(size, { ...crop, zoom }) / 2;
  return { zoom, x: between(half, crop.x, size.width - half), y: between(half, crop.y, size.height - half) };
}

function between(least: number, value: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
