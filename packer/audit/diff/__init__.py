"""Why two caches differ: changes in recipe, inputs and tokenizer, and the documents and blocks they affect."""
