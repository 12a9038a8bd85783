"""Result to figure, file for file as in analyses; nothing is computed here."""
