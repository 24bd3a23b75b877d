"""The contract of locks and semaphores with leases."""
