"""A report: the results of a study judged against the paper, as a page to read."""
