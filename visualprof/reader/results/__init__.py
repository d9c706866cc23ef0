"""Read result folders of measured models."""
