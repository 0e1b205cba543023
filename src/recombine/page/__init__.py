"""HTML pages that need no server: the report of a study, the results of a sweep."""
