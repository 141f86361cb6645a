"""`barnabas consume`: kafka-console-consumer, and more ways to see a record."""
