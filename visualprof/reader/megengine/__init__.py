"""What the formats of MegEngine share."""
