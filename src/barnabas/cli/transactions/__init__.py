"""`barnabas transactions`: kafka-transactions, which shows open transactions and ends those that hang."""
