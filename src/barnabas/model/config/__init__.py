"""Configuration with Kafka's names: every key there is, server.properties, and what a broker and a topic make of it."""
