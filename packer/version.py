"""The version of packer, for manifests and for the command line."""

__version__ = "0.1.0"
