"""The template report: what a tokenizer and its chat template do to conversations, shown with renderings and ids."""
