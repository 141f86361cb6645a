"""One partition's log: appending, reading, bringing it to the disk."""
