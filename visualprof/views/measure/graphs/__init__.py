"""Models as graphs: hierarchy, comparison, and the measured times of their nodes."""
