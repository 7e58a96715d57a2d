"""A recipe: what a build is asked for, the rules in it for rows and readers, and how it is read from YAML."""
