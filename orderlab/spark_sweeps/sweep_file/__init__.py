"""A sweep file, and what it comes to: axes, expressions, the design, run number i."""
