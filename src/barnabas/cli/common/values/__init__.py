"""Values that options take: addresses, numbers, lengths of time, sizes, pairs, patterns of topics, files."""
