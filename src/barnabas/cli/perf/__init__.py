"""How fast: `producer-perf`, `consumer-perf` and `latency`, with the flags and result lines of Kafka's own tools."""
