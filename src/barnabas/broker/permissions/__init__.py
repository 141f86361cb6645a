"""Permission: whether a caller may do what a request asks for, and what it is answered if not.

The rules are `machines/security/authorizer`; they come from the metadata tree (`following`). What an API needs stands
in its line of `broker/serving/registry` (`needs`); where each topic, group or resource of a request is judged on its
own, a function of `topics`, `groups`, `transactions`, `configs` or `cluster` does so. Produce and Fetch, which are
asked for most, ask on their own (`records`), and Metadata in its handler.
"""
