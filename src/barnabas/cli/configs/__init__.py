"""`barnabas configs`: kafka-configs, for topics, brokers, groups and client metrics."""
