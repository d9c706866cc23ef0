"""Work, idle time, memory and load of devices."""
