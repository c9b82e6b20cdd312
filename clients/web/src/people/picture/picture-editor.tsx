import { MatchdayError } from "@matchday/client";
import { type KeyboardEvent, type PointerEvent, useEffect, useLayoutEffect, useRef, useState } from "react";
import { errorMessage } from "../../ui/states.tsx";
import { type Crop, fitted, highestZoom, sideOf, wholeCrop } from "./crop.ts";
import { drawCrop, encodeCrop } from "./encode.ts";
import { uploadPicture } from "./upload.ts";

/** Width of the canvas in its own pixels. CSS scales it. */
const canvasSize = 560;
/** Share of the visible part by which an arrow key moves the picture. */
const keyStep = 0.05;
const arrows: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

const unusable = "This picture can't be used. Choose another one.";
const refusals: Record<string, string> = {
  avatars_unavailable: "Pictures can't be changed at the moment.",
  unsupported_media_type: unusable,
  validation_failed: unusable,
  body_too_large: "This picture is too large. Choose another one.",
  rate_limited: "You've changed your picture many times.",
};

interface Props {
  picture: ImageBitmap;
  uploaded: () => void;
  cancel: (isUploading: boolean) => void;
}

/** Selects the visible part of a picture, with a finger, the mouse or the keyboard, and uploads it. */
export function PictureEditor({ picture, uploaded, cancel }: Props) {
  const [crop, setCrop] = useState(() => wholeCrop(picture));
  const [progress, setProgress] = useState<number>();
  const [error, setError] = useState<unknown>();
  const request = useRef<AbortController>(undefined);
  const isBusy = progress !== undefined;
  const move = (how: (crop: Crop) => Crop) => !isBusy && setCrop((crop) => fitted(picture, how(crop)));
  useEffect(() => () => request.current?.abort(), []);

  async function upload() {
    setError(undefined);
    setProgress(0);
    const own = new AbortController();
    request.current = own;
    try {
      await uploadPicture(await encodeCrop(picture, crop), setProgress, own.signal);
      return uploaded();
    } catch (error) {
      if (own.signal.aborted) return;
      setError(error);
    }
    setProgress(undefined);
  }
  return (
    <div className="picture-editor">
      <Frame picture={picture} crop={crop} move={move} />
      <label className="zoom">
        <span>Zoom</span>
        <input
          type="range"
          min={1}
          max={highestZoom}
          step={0.05}
          value={crop.zoom}
          aria-valuetext={`${Math.round(crop.zoom * 100)}%`}
          disabled={isBusy}
          onChange={({ target }) => move((crop) => ({ ...crop, zoom: Number(target.value) }))}
        />
      </label>
      {error !== undefined && (
        <p className="notice" role="alert">
          {error instanceof MatchdayError ? errorMessage(error, refusals) : unusable}
        </p>
      )}
      {isBusy && (
        <div className="upload">
          <progress aria-label="Upload" max={1} value={progress} />
          <p role="status" className="small soft">
            {progress < 1 ? "Uploading…" : "Almost done…"}
          </p>
        </div>
      )}
      <div className="question-actions">
        <button type="button" className="button" onClick={upload} disabled={isBusy}>
          {error === undefined ? "Use this picture" : "Try again"}
        </button>
        <button type="button" className="button quiet" onClick={() => cancel(isBusy)}>
          Cancel
        </button>
      </div>
    </div>
  );
}

interface FrameProps {
  picture: ImageBitmap;
  crop: Crop;
  move: (how: (crop: Crop) => Crop) => void;
}

/** The visible part. Dragging moves the picture, and two fingers zoom it. */
function Frame({ picture, crop, move }: FrameProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const pointers = useRef(new Map<number, { x: number; y: number }>());
  useEffect(() => {
    if (canvas.current) drawCrop(canvas.current, picture, crop);
  }, [picture, crop]);
  // The next keys after the file dialog belong to the editor.
  useLayoutEffect(() => frame.current?.focus(), []);

  function dragged(event: PointerEvent<HTMLDivElement>) {
    const before = pointers.current.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY };
    const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
    pointers.current.set(event.pointerId, now);
    const scale = 1 / event.currentTarget.clientWidth;
    const ratio = other ? distance(now, other) / Math.max(1, distance(before, other)) : 1;
    move((crop) => {
      const side = sideOf(picture, crop) * scale;
      return {
        x: crop.x - (now.x - before.x) * side,
        y: crop.y - (now.y - before.y) * side,
        zoom: crop.zoom * ratio,
      };
    });
  }
  function pressed(event: KeyboardEvent) {
    const [x, y] = arrows[event.key] ?? [0, 0];
    if (x === 0 && y === 0) return;
    event.preventDefault();
    move((crop) => {
      const step = sideOf(picture, crop) * keyStep;
      return { ...crop, x: crop.x + x * step, y: crop.y + y * step };
    });
  }
  const released = ({ pointerId }: PointerEvent) => pointers.current.delete(pointerId);
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be focused, and has no other controls here
    <div
      ref={frame}
      className="picture-frame"
      role="group"
      aria-label="Visible part of the picture. Move it with the arrow keys."
      // biome-ignore lint/a11y/noNoninteractiveTabindex: the arrow keys move the picture
      tabIndex={0}
      onKeyDown={pressed}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
      }}
      onPointerMove={dragged}
      onPointerUp={released}
      onPointerCancel={released}
    >
      <canvas ref={canvas} width={canvasSize} height={canvasSize} />
      <p className="small soft">Drag the picture to move it.</p>
    </div>
  );
}

const distance = (one: { x: number; y: number }, other: { x: number; y: number }) =>
  Math.hypot(one.x - other.x, one.y - other.y);
