"""Log directories: which files there are, what they are, and their traces."""
