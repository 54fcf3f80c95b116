"""The upstream side: processes and HTTP connections to the servers behind us, and what they list."""
