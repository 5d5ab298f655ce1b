"""Does splitting a model over unlike units pay: strategies, their search, and what came of them."""
