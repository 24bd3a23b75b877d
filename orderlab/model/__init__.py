"""What is right: packet identifiers, laws, abstract specifications, the explorer, histories and their checkers."""
