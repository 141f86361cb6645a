"""`barnabas security`, and what `barnabas start --secure` does on first use: certificates, users and settings."""
