"""`barnabas produce`: kafka-console-producer, and more ways to write a record."""
