"""HTML pages in one file: the report of a study, the results of a sweep."""
