"""Description and observation of the machine."""
