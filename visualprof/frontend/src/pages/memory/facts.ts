// Facts about the memory of one device.
import type { Cell, MemoryDevice } from "../../api/model";

export function deviceLabel(device: MemoryDevice, host: string, number: string): string {
  if (device.id < 0) return host;
  return device.name ? `${number} · ${device.name}` : number;
}

export function deviceFacts(device: MemoryDevice): Record<string, Cell> {
  const total = device.memory_bytes;
  return {
    memory_bytes: total,
    peak_allocated_bytes: device.peak_allocated_bytes,
    peak_ratio: total ? device.peak_allocated_bytes / total : null,
    peak_reserved_bytes: device.peak_reserved_bytes,
    fragmentation_bytes: device.fragmentation_bytes,
    events: device.events,
  };
}
