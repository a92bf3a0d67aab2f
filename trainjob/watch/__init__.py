"""Live views of runs, on a terminal and as a page, and the tables and lines that commands print."""
