"""Tokens in agent RL, cell by cell: merge trees, their specification, a reversible renderer, a delta tokenizer."""

__version__ = "0.0.1"
