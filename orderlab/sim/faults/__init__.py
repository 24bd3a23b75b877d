"""Every fault that can strike a simulated system, and when it strikes."""
