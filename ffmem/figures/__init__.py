"""One chart per result; nothing is computed here."""
