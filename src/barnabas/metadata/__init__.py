"""The cluster's metadata tree and what is read from it."""
