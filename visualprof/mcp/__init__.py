"""What assistants may ask, over the Model Context Protocol; only `protocol` and `transports` import its package."""
