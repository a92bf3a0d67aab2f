"""The kinds of cluster: a folder for each, with its keys, its facts and what its job script prints."""
