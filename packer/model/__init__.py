"""What a tokenizer folder defines: template, special tokens, and the encoders of its tokenizer."""
