"""Values that options take: numbers, lengths of time, sizes, pairs, patterns of topics, files."""
