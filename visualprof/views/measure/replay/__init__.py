"""A recording replayed: what its moments wait for, the path that decides its length, and what changes would bring."""
