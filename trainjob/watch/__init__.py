"""The live view of runs on a terminal, and the tables and lines that commands print."""
