"""Chrome trace-event JSON: large files in pieces, typed events, tracks."""
