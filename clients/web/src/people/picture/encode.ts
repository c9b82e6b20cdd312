import { type Crop, sideOf } from "./crop.ts";

/** Longest side in pixels that is uploaded. The service scales pictures to 512 pixels; the rest is for sharp edges. */
const longestSide = 1024;
const quality = 0.9;

/** Thrown if the browser cannot read a file as a picture. */
export class UnreadablePictureError extends Error {}

/** Decodes a file in any format that the browser knows, and turns it upright. */
export async function decodePicture(file: Blob): Promise<ImageBitmap> {
  try {
    return await createImageBitmap(file, { imageOrientation: "from-image" });
  } catch (cause) {
    throw new UnreadablePictureError("not a picture", { cause });
  }
}

/** Draws the square part of a picture on a canvas. Transparent pixels become white, as in the service. */
export function drawCrop(canvas: HTMLCanvasElement, picture: ImageBitmap, crop: Crop): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const side = sideOf(picture, crop);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, crop.x - side / 2, crop.y - side / 2, side, side, 0, 0, canvas.width, canvas.height);
}

/** Encodes the square part of a picture as a JPEG that is far below the size limit of the service. */
export async function encodeCrop(picture: ImageBitmap, crop: Crop): Promise<Blob> {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.min(longestSide, Math.round(sideOf(picture, crop))));
  canvas.height = canvas.width;
  drawCrop(canvas, picture, crop);
  const encoded = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/jpeg", quality));
  if (!encoded) throw new UnreadablePictureError("the picture could not be encoded");
  return encoded;
}
