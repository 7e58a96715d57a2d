"""Plan a build: which files it reads, what nobody has to make again, and what is left to do."""
