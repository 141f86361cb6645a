"""`barnabas quotas`: how much users, client ids and addresses may use."""
