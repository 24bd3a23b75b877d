"""What the command line prints, one file per form."""
