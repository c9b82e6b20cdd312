/** Saves a JSON text as a file on the device. */
export function saveFile(name: string, text: string): void {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.click();
  URL.revokeObjectURL(link.href);
}
