"""Kafka's protocol spoken directly, for what librdkafka cannot ask; command-line tools and tests use it."""
