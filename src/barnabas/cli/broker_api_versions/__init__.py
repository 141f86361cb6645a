"""`barnabas broker-api-versions`: kafka-broker-api-versions, and the versions that Kafka's clients speak."""
