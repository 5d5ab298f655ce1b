"""What a chip costs to make and to run: dies, capital, service, and what a node or a power budget holds."""
