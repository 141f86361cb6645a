"""What commands share: options and their rules, the connection, output, progress, failures and remedies."""
