"""The tables of keys: Kafka's broker, topic and group keys, retired ones, our own, and what each does here."""
