"""One layer as key-value memories at one place of a text: the paper's Figure 1."""
