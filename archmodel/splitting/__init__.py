"""Does a split pay? Strategies against all on one side: where the gain comes from, where it leaks, and the verdict."""
