"""Client code under a scheduler: every order of the commands that clients send, on the kernel."""
