"""Session stores: their steps carried out and judged, their keys inspected, what is tried of them."""
