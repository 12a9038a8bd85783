"""How a block is recognised: its form, what finds it, what it does."""
