// What is worth saying about the memory of one device.
import type { Cell, MemoryDevice } from "../../api/model";

export function device_label(device: MemoryDevice, host: string, number: string): string {
  if (device.id < 0) return host;
  return device.name ? `${number} · ${device.name}` : number;
}

/** Without a caching allocator "reserved" is 0 throughout, and what follows from it would be nonsense. */
export function reserves(device: MemoryDevice): boolean {
  return (device.peak_reserved_bytes ?? 0) > 0;
}

export function device_facts(device: MemoryDevice): Record<string, Cell> {
  const total = device.memory_bytes;
  return {
    memory_bytes: total,
    peak_allocated_bytes: device.peak_allocated_bytes,
    peak_ratio: total ? device.peak_allocated_bytes / total : null,
    peak_reserved_bytes: reserves(device) ? device.peak_reserved_bytes : null,
    fragmentation_bytes: reserves(device) && (device.fragmentation_bytes ?? -1) >= 0 ? device.fragmentation_bytes : null,
    events: device.events,
  };
}
