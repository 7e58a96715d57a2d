"""The command line: click and rich around the library, one file per command.

Nothing heavy is imported before a command runs, so that `packer --help` answers immediately.
"""
