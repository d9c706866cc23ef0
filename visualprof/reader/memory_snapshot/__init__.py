"""Memory snapshots of PyTorch's caching allocator: decoding, the history as columns, the state at any moment."""
