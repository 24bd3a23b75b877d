"""What operations cost, as functions of how much there is: measured on the kernel, fitted, held against a budget."""
