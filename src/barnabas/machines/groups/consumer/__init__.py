"""Groups of the consumer protocol (KIP-848), whose coordinator assigns: ConsumerGroupHeartbeat."""
