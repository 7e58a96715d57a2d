"""packer: chat files in; a verified, packed, fingerprinted token cache out."""

__version__ = "0.1.0"
