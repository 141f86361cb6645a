"""The share partitions that this broker leads, what is stored of them, and the sessions of their members."""
