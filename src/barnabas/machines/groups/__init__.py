"""Consumer groups: who is a member, who reads what, and how far everyone has read."""
