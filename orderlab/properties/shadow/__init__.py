"""Scripts run once more beside the kernel, with values that know where they come from."""
