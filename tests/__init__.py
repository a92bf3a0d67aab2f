"""The tests, as a package of this repository, so that no other installed package of that name is meant."""
