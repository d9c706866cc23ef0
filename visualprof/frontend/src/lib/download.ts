/** Let the browser save an address or bytes as a file. */
export function downloadFile(content: string | Blob, name: string): void {
  const link = document.createElement("a");
  link.href = content instanceof Blob ? URL.createObjectURL(content) : content;
  link.download = name;
  link.click();
  if (content instanceof Blob) setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export async function downloadCanvas(canvas: HTMLCanvasElement, name: string): Promise<void> {
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve));
  if (blob) downloadFile(blob, name);
}
