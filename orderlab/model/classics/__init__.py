"""Classic specifications with published state counts, and the catalogue that names them."""
