"""The API: one file a resource."""
