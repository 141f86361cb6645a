"""Apache Kafka and Barnabas side by side in one run, as ratios."""
