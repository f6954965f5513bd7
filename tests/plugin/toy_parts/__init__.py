"""Parts of an installed package, one of each kind."""
