"""The contract of rate limiters over windows."""
