"""What commands print and write: one model of what was found (`report`), and the forms that it takes."""
