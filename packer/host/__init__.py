"""What keeps this machine safe: limits on files, Arrow messages and templates."""
