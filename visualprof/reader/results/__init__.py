"""Result folders of measured models."""
