"""Code shared by the formats of MegEngine."""
