"""Histories of clients while a cluster's brokers, store and network fail, and the rules that such histories keep."""
