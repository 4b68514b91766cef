"""What docs/performance.md quotes: each module is a command that prints its table."""
