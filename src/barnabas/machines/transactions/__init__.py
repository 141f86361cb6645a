"""Transactions: the rules of their coordinator."""
