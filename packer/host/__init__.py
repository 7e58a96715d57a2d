"""What keeps this machine safe from what it is given: files, Arrow messages and templates, each within its limits."""
