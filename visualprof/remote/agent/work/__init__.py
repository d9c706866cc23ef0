"""One task, from the download of its files to the upload of its result."""
