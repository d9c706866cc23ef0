"""Memory snapshots: the allocator at a moment, reasons why memory ran out, and memory that grows in every step."""
