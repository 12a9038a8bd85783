"""A study in the browser: browse, search, annotate and debug; server-rendered, nothing fetched."""
